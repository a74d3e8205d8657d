//! Number of rows and pages that a turn writes.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rye_engine::store::{Claim, InboxMessage, Lease, SessionStore, StoreError};
use rye_protocol::{EntryId, Op, PromptId, PromptStatus, QueuedPrompt, Usage};
use rye_store::SqliteStore;
use rye_testkit::store_contract::run;
use rye_testkit::store_contract::sample::{
    append, create_session, entry, id, message_event, prompt, put_prompt, put_thread, sid,
    status_event, thread, write,
};

const TURNS: i64 = 50;
const COMMITS: i64 = 4;

/// Writes turns with one tool call each, like the engine: the thread first, and the prompt in the
/// first and last commit.
async fn write_turns(store: &dyn SessionStore, lease: &Lease, session: &str) {
    let mut leaf: Option<EntryId> = None;
    for _ in 0..TURNS {
        let mut prompt = QueuedPrompt {
            id: PromptId::new(),
            ..prompt(session, "q", 1)
        };
        for step in 1..=COMMITS {
            let mut next = entry(session, "e", None);
            next.parent = leaf.replace(EntryId::new());
            next.id = leaf.clone().unwrap();
            let mut ops = vec![put_thread(thread(session, "main"))];
            ops.extend([append(next.clone()), status_event(), message_event(&next)]);
            prompt.status = match step {
                COMMITS => PromptStatus::Done,
                _ => PromptStatus::Running,
            };
            if [1, COMMITS].contains(&step) {
                ops.push(put_prompt(prompt.clone()));
                ops.push(Op::AddUsage(Usage {
                    output_tokens: 7,
                    ..Usage::default()
                }));
            }
            write(store, lease, ops).await.unwrap();
        }
    }
}

fn count(db: &Connection, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    db.query_row(&query, [], |row| row.get(0)).unwrap()
}

/// Number of pages in the write-ahead log.
fn pages(file: &Path) -> i64 {
    let log = fs::metadata(file.with_extension("db-wal")).unwrap().len();
    i64::try_from(log / 4_096).unwrap()
}

#[test]
fn ordinary_turn_writes_the_log_and_its_thread_row_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = create_session(&store, "s").await;
        let before = pages(&file);
        write_turns(&store, &lease, "s").await;
        let written = pages(&file) - before;
        // Two pages per commit, plus occasionally a new page and its parent.
        let limit = TURNS * (2 * COMMITS + 3);
        assert!(
            written <= limit,
            "{written} pages, expected at most {limit}"
        );
        let db = Connection::open(&file).unwrap();
        assert_eq!(count(&db, "engine_ids"), 0);
        // One prompt per turn and one entry per commit; events are in the rows of entries.
        assert_eq!(count(&db, "engine_log"), TURNS * (1 + COMMITS));
        assert_eq!(count(&db, "engine_events"), TURNS * COMMITS);
        let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(snapshot.prompts, []);
        let events = u64::try_from(2 * TURNS * COMMITS).unwrap();
        assert_eq!(snapshot.sequence, events);
        let usage = snapshot.session.usage;
        assert_eq!(usage.output_tokens, u64::try_from(2 * 7 * TURNS).unwrap());
        let archive = store.archive(&sid("s")).await.unwrap().unwrap();
        let numbers: Vec<_> = archive.events.iter().map(|it| it.sequence).collect();
        assert_eq!(numbers, (1..=events).map(Some).collect::<Vec<_>>());
    });
}

/// The cache of the writer distinguishes sessions, and posts invalidate it.
#[test]
fn interleaved_sessions_do_not_affect_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    run(async {
        let (store, other) = (
            SqliteStore::open(&file).unwrap(),
            SqliteStore::open(&file).unwrap(),
        );
        let names = ["r", "s", "t"];
        let mut leases = Vec::new();
        for name in names {
            leases.push(create_session(&store, name).await);
        }
        for round in 0..12 {
            for (lease, name) in leases.iter().zip(names) {
                let mut ops = vec![
                    append(entry(name, &format!("e{round:02}"), None)),
                    status_event(),
                ];
                if round % 3 == 0 {
                    ops.push(put_prompt(prompt(name, &format!("q{round:02}"), round)));
                }
                if round % 4 == 3 {
                    // This batch fails and is rolled back.
                    let mut invalid = ops.clone();
                    invalid.push(Op::RemovePrompt(id("q00")));
                    invalid.push(append(entry(name, "bad", Some("nowhere"))));
                    write(&store, lease, invalid).await.unwrap_err();
                }
                assert_eq!(write(&store, lease, ops).await, Ok(round + 1));
            }
            if round % 5 == 2 {
                for name in names {
                    let posted = prompt(name, &format!("p{round:02}"), round);
                    let post = InboxMessage::prompt(posted);
                    let writer = if round == 2 { &store } else { &other };
                    writer.post(&sid(name), post).await.unwrap();
                }
            }
        }
        for name in names {
            let archive = other.archive(&sid(name)).await.unwrap().unwrap();
            assert_eq!(archive.entries.len(), 12);
            assert_eq!(archive.events.len(), 12);
            let prompts: Vec<_> = archive.prompts.iter().map(|it| it.id.as_str()).collect();
            assert_eq!(prompts, ["q00", "p02", "q03", "q06", "p07", "q09"]);
            let snapshot = other.snapshot(&sid(name)).await.unwrap().unwrap();
            assert_eq!(snapshot.prompts.len(), prompts.len());
        }
        // A fenced holder cannot use the cache.
        let taken = other.claim(&sid("s"), Claim::TakeOver).await;
        let lost = write(&store, &leases[1], vec![status_event()]).await;
        assert_eq!(lost, Err(StoreError::Fenced(sid("s"))));
        assert_eq!(
            write(&other, &taken.unwrap(), vec![status_event()]).await,
            Ok(13)
        );
        assert_eq!(
            write(&store, &leases[2], vec![status_event()]).await,
            Ok(13)
        );
    });
}
