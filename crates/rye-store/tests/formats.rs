//! Files that older versions have written are brought up to date, and nothing of them is lost.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::Value;
use rye_engine::store::{Claim, Post, Posted, SessionFilter, SessionStore};
use rye_protocol::{ItemStatus, Op};
use rye_store::Sqlite;
use rye_store_contract::run;
use rye_store_contract::sample::{begin, item, sid, told, write};
use tempfile::TempDir;

/// A file as an older version has left it.
fn written_by(version: u32, statements: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let db = Connection::open(&file).unwrap();
    db.execute_batch(statements).unwrap();
    db.pragma_update(None, "application_id", i32::from_be_bytes(*b"RyeE"))
        .unwrap();
    db.pragma_update(None, "user_version", version).unwrap();
    (folder, file)
}

/// All that a question gives.
fn ask(file: &Path, question: &str) -> Vec<Vec<Value>> {
    let db = Connection::open(file).unwrap();
    let mut find = db.prepare(question).unwrap();
    let columns = find.column_count();
    let rows = find.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_file_of_an_older_version_is_brought_up_to_date() {
    let (_folder, file) = written_by(1, include_str!("../migrations/0001_sessions.sql"));
    run(async {
        let store = Sqlite::open(&file).unwrap();
        begin(&store, "s").await;
        let filter = SessionFilter {
            parent: Some(sid("s")),
            limit: 9,
            ..SessionFilter::default()
        };
        assert!(store.sessions(filter).await.unwrap().is_empty());
    });
}

/// One that an earlier version has written: a session that ended, and one at a gate whose
/// process was killed, with an order that nobody has carried out.
#[test]
fn what_the_second_version_has_written_is_carried_over() {
    let (_folder, file) = written_by(2, include_str!("files/format_2.sql"));
    run(async {
        let store = Sqlite::open(&file).unwrap();
        let filter = SessionFilter {
            limit: 9,
            ..SessionFilter::default()
        };
        let sessions = store.sessions(filter).await.unwrap();
        let [blocked, ended] = &sessions[..] else {
            unreachable!("{sessions:?}")
        };
        assert_eq!(
            (ended.usage.input_tokens, ended.usage.output_tokens),
            (1_200, 40)
        );
        for (session, count) in [(blocked, 8), (ended, 6)] {
            let archive = store.archive(&session.id).await.unwrap().unwrap();
            let numbers: Vec<_> = archive.events.iter().map(|it| it.sequence).collect();
            let all: Vec<_> = (1..=count).map(Some).collect();
            assert_eq!(numbers, all);
            let leaf = archive.threads[0].leaf.clone().unwrap();
            let path = store.path(&session.id, &leaf).await.unwrap();
            assert_eq!(path, archive.entries);
            let thread = &archive.threads[0].id;
            let page = store.entries(&session.id, thread, Some(&path[0].id), 1);
            assert_eq!(page.await.unwrap(), path[1..2]);
        }
        let record = store.record(&blocked.id).await.unwrap().unwrap();
        assert_eq!((record.gates.len(), record.suspended.len()), (1, 1));
        let lease = store.claim(&blocked.id, Claim::IfFree).await.unwrap();
        let orders = store.controls(&lease).await.unwrap();
        assert_eq!(orders.len(), 1);
        let ops = vec![
            told(),
            Op::AddUsage(ended.usage),
            Op::PutThread(Arc::new(record.threads[0].clone())),
            Op::CompleteCommand(orders[0].id.clone()),
        ];
        assert_eq!(write(&store, &lease, ops).await, Ok(9));
        assert_eq!(store.controls(&lease).await, Ok(Vec::new()));
        let now = store.record(&blocked.id).await.unwrap().unwrap();
        assert_eq!(now.session.usage, record.session.usage.plus(ended.usage));
    });
}

/// As whoever looks into a file sees them, in their order. Only their numbers are others.
const SEEN: [&str; 3] = [
    "SELECT entry.session, entry.thread, entry.id, parent.id, entry.doc
     FROM engine_entries AS entry LEFT JOIN engine_entries AS parent
     ON parent.number = entry.parent ORDER BY entry.session, entry.number",
    "SELECT session, thread, id, status, asked, doc FROM engine_queue_items
     ORDER BY session, number",
    "SELECT session, sequence, doc FROM engine_events ORDER BY session, sequence",
];

/// A session of two threads, a copy of it, and one at a gate with a prompt that waits, whose
/// process was killed.
#[test]
fn what_the_fourth_version_has_written_is_carried_over() {
    let (_folder, file) = written_by(4, include_str!("files/format_4.sql"));
    let before = SEEN.map(|question| ask(&file, question));
    assert_eq!(before.each_ref().map(Vec::len), [19, 5, 18]);
    run(async {
        let store = Sqlite::open(&file).unwrap();
        assert_eq!(SEEN.map(|question| ask(&file, question)), before);
        let filter = SessionFilter {
            limit: 9,
            ..SessionFilter::default()
        };
        let sessions = store.sessions(filter).await.unwrap();
        for (session, last) in sessions.iter().zip([2, 10, 32]) {
            let archive = store.archive(&session.id).await.unwrap().unwrap();
            let numbers: Vec<_> = archive.events.iter().map(|it| it.sequence).collect();
            assert_eq!(numbers, (1..=last).map(Some).collect::<Vec<_>>());
            for seen in 0..=last {
                let rest = store.events(&session.id, seen, 99).await.unwrap();
                assert_eq!(rest, archive.events[usize::try_from(seen).unwrap()..]);
            }
            for thread in &archive.threads {
                let path = store.path(&session.id, thread.leaf.as_ref().unwrap());
                let path = path.await.unwrap();
                let all = store.entries(&session.id, &thread.id, None, 99);
                assert_eq!(all.await.unwrap(), path);
                let page = store.entries(&session.id, &thread.id, Some(&path[0].id), 1);
                assert_eq!(page.await.unwrap(), path[1..2]);
            }
        }
        let record = store.record(&sessions[1].id).await.unwrap().unwrap();
        let [runs, waits] = &record.items[..] else {
            unreachable!("{:?}", record.items)
        };
        assert_eq!(runs.status, ItemStatus::Running);
        assert_eq!(waits.status, ItemStatus::Waiting);
        assert_eq!((record.gates.len(), record.suspended.len()), (1, 1));
        let again = Post::Prompt(Box::new(waits.clone()));
        assert_eq!(store.post(&sessions[1].id, again).await, Ok(Posted::Same));
        // It goes on where it was.
        let lease = store.claim(&sessions[1].id, Claim::Take).await.unwrap();
        let mut done = runs.clone();
        done.status = ItemStatus::Done;
        let ops = vec![Op::PutItem(Arc::new(done)), told()];
        assert_eq!(write(&store, &lease, ops).await, Ok(11));
        let now = store.record(&sessions[1].id).await.unwrap().unwrap();
        assert_eq!(now.items, std::slice::from_ref(waits));
    });
}

/// A session whose ids are all in the order of their making, one of two threads in which they
/// are not and from which a prompt was taken away, and one with a prompt that was posted.
#[test]
fn what_the_fifth_version_has_written_is_carried_over() {
    let (_folder, file) = written_by(5, include_str!("files/format_5.sql"));
    let before = SEEN.map(|question| ask(&file, question));
    assert_eq!(before.each_ref().map(Vec::len), [15, 11, 16]);
    run(async {
        let store = Sqlite::open(&file).unwrap();
        assert_eq!(SEEN.map(|question| ask(&file, question)), before);
        for (name, open) in [
            ("in-order", vec!["q3"]),
            ("any-order", vec!["d", "c", "g", "f"]),
            ("posted", vec!["q1"]),
        ] {
            let record = store.record(&sid(name)).await.unwrap().unwrap();
            let found: Vec<_> = record.items.iter().map(|item| item.id.as_str()).collect();
            assert_eq!(found, open);
            let lease = store.claim(&sid(name), Claim::Take).await.unwrap();
            let archive = store.archive(&sid(name)).await.unwrap().unwrap();
            for item in &archive.items {
                let again = Post::Prompt(Box::new(item.clone()));
                assert_eq!(store.post(&sid(name), again).await, Ok(Posted::Same));
                let mut done = item.clone();
                done.status = ItemStatus::Done;
                write(&store, &lease, vec![Op::PutItem(Arc::new(done))])
                    .await
                    .unwrap();
            }
            for entry in &archive.entries {
                let path = store.path(&sid(name), &entry.id).await.unwrap();
                assert_eq!(path.last(), Some(entry));
                let again = vec![Op::AppendEntry(Arc::new(entry.clone()))];
                write(&store, &lease, again).await.unwrap();
            }
            let record = store.record(&sid(name)).await.unwrap().unwrap();
            assert_eq!(record.items, []);
            // What comes after them is found too.
            for new in ["e", "zz", "0"] {
                let item = item(name, new, 9);
                let post = || Post::Prompt(Box::new(item.clone()));
                assert_eq!(store.post(&sid(name), post()).await, Ok(Posted::Written));
                assert_eq!(store.post(&sid(name), post()).await, Ok(Posted::Same));
            }
        }
    });
    // Only where ids are not in their order they are named.
    let named = "SELECT kind, session, id FROM engine_ids ORDER BY kind, session, number";
    let named = ask(&file, named);
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        other => unreachable!("{other:?}"),
    };
    let named: Vec<String> = named
        .iter()
        .map(|row| row.iter().map(text).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        named,
        [
            "entry 2 c",
            "entry 2 a",
            "entry 2 g",
            "entry 2 f",
            "item 1 e",
            "item 1 zz",
            "item 1 0",
            "item 2 c",
            "item 2 a",
            "item 2 g",
            "item 2 f",
            "item 2 e",
            "item 2 zz",
            "item 2 0",
            "item 3 e",
            "item 3 zz",
            "item 3 0",
        ]
    );
}
