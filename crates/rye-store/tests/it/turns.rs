//! What a turn costs: how many rows and pages it writes.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rye_engine::store::{Claim, InboxMessage, Lease, SessionStore, StoreError};
use rye_protocol::{EntryId, Op, PromptId, PromptStatus, QueuedPrompt, Usage};
use rye_store::SqliteStore;
use rye_store_contract::run;
use rye_store_contract::sample::{
    append, begin, entry, id, prompt, put_prompt, put_thread, sid, thread, told, told_of, write,
};

const TURNS: i64 = 50;
const COMMITS: i64 = 4;

/// Turns of a tool call each, as the engine writes them: the thread comes first, and the prompt
/// runs from the first commit to the last.
async fn turns(store: &dyn SessionStore, lease: &Lease, session: &str) {
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
            ops.extend([append(next.clone()), told(), told_of(&next)]);
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
    let question = format!("SELECT count(*) FROM {table}");
    db.query_row(&question, [], |row| row.get(0)).unwrap()
}

/// How many pages are in the log that SQLite keeps.
fn pages(file: &Path) -> i64 {
    let log = fs::metadata(file.with_extension("db-wal")).unwrap().len();
    i64::try_from(log / 4_096).unwrap()
}

#[test]
fn an_ordinary_turn_writes_to_the_log_and_to_the_row_of_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = begin(&store, "s").await;
        let before = pages(&file);
        turns(&store, &lease, "s").await;
        let written = pages(&file) - before;
        // In each commit the two of them; now and then a new one, and what leads to it.
        let most = TURNS * (2 * COMMITS + 3);
        assert!(written <= most, "{written} pages rather than {most}");
        let db = Connection::open(&file).unwrap();
        assert_eq!(count(&db, "engine_ids"), 0);
        // A prompt, and an entry in each commit; what is told stands with these.
        assert_eq!(count(&db, "engine_log"), TURNS * (1 + COMMITS));
        assert_eq!(count(&db, "engine_events"), TURNS * COMMITS);
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.prompts, []);
        let told = u64::try_from(2 * TURNS * COMMITS).unwrap();
        assert_eq!(record.sequence, told);
        let usage = record.session.usage;
        assert_eq!(usage.output_tokens, u64::try_from(2 * 7 * TURNS).unwrap());
        let archive = store.archive(&sid("s")).await.unwrap().unwrap();
        let numbers: Vec<_> = archive.events.iter().map(|it| it.sequence).collect();
        assert_eq!(numbers, (1..=told).map(Some).collect::<Vec<_>>());
    });
}

/// Several sessions in turns, as a host has them: none takes what another has left off for its
/// own, and whoever posts in between is seen by the next commit.
#[test]
fn sessions_in_turns_do_not_get_in_each_others_way() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    run(async {
        let (store, other) = (
            SqliteStore::open(&file).unwrap(),
            SqliteStore::open(&file).unwrap(),
        );
        let names = ["r", "s", "t"];
        let mut leases = Vec::new();
        for name in names {
            leases.push(begin(&store, name).await);
        }
        for round in 0..12 {
            for (lease, name) in leases.iter().zip(names) {
                let mut ops = vec![append(entry(name, &format!("e{round:02}"), None)), told()];
                if round % 3 == 0 {
                    ops.push(put_prompt(prompt(name, &format!("q{round:02}"), round)));
                }
                if round % 4 == 3 {
                    // One that is refused, and takes what it wrote back with it.
                    let mut bad = ops.clone();
                    bad.push(Op::RemovePrompt(id("q00")));
                    bad.push(append(entry(name, "bad", Some("nowhere"))));
                    write(&store, lease, bad).await.unwrap_err();
                }
                assert_eq!(write(&store, lease, ops).await, Ok(round + 1));
            }
            if round % 5 == 2 {
                for name in names {
                    let posted = prompt(name, &format!("p{round:02}"), round);
                    let post = InboxMessage::Prompt(Box::new(posted));
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
            let record = other.snapshot(&sid(name)).await.unwrap().unwrap();
            assert_eq!(record.prompts.len(), prompts.len());
        }
        // Whoever takes a session over is not taken for the one before.
        let taken = other.claim(&sid("s"), Claim::TakeOver).await;
        let lost = write(&store, &leases[1], vec![told()]).await;
        assert_eq!(lost, Err(StoreError::Fenced(sid("s"))));
        assert_eq!(write(&other, &taken.unwrap(), vec![told()]).await, Ok(13));
        assert_eq!(write(&store, &leases[2], vec![told()]).await, Ok(13));
    });
}
