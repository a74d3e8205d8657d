//! `thread_read` and `list_threads`.

use std::path::Path;
use std::sync::Arc;

use rye_engine::sandbox::Sandbox;
use rye_engine::store::{Claim, SessionFilter};
use rye_engine::{Engine, NewSession, Prompt, Session};
use rye_model::Catalogue;
use rye_protocol::{EntryKind, SessionId};
use rye_sandbox::Virtual;
use rye_store::{MemoryBlobs, SqliteStore};
use serde_json::{Value, json};

use super::agent::{Outcome, finish, outcomes, script};

/// An engine over what was written before, with two models.
fn engine(store: &Path, main: &str, child: &str) -> Engine {
    let sandbox: Arc<dyn Sandbox> = Arc::new(Virtual::new());
    let models = Catalogue::new(".")
        .with("scripted:test", main.parse().unwrap())
        .with("scripted:child", child.parse().unwrap());
    Engine::builder()
        .store(SqliteStore::open(store).unwrap())
        .blobs(MemoryBlobs::new())
        .models(models)
        .sandbox(sandbox)
        .tools(rye_engine::builtin::tools())
        .build()
        .unwrap()
}

/// A script that says nothing until so many answers were given, and then makes these calls.
fn later(answers: usize, calls: &[(&str, Value)]) -> String {
    let mut steps = vec![json!({ "text": "before" }); answers];
    let rest: Value = serde_json::from_str(&script(calls)).unwrap();
    steps.extend(rest["steps"].as_array().unwrap().clone());
    json!({ "steps": steps }).to_string()
}

async fn session(engine: &Engine, id: &str) -> Session {
    let id: SessionId = id.parse().unwrap();
    let new = NewSession {
        id: Some(id),
        ..NewSession::default()
    };
    engine.create_session(new).await.unwrap()
}

/// Opens it again and makes these calls, after so many answers.
async fn go_on(
    store: &Path,
    id: &SessionId,
    answers: usize,
    calls: &[(&str, Value)],
) -> Vec<Outcome> {
    let engine = engine(store, &later(answers, calls), "steps: [{ text: x }]");
    let session = engine.open_session(id, Claim::IfFree).await.unwrap();
    let before = outcomes(&engine, &session).await.len();
    finish_next(&engine, &session).await;
    let all = outcomes(&engine, &session).await;
    engine.shutdown().await.unwrap();
    all[before..].to_vec()
}

/// Prompts once more and waits for its answer.
async fn finish_next(engine: &Engine, session: &Session) {
    let id = session.prompt("go on").await.unwrap();
    let answer = tokio::time::timeout(std::time::Duration::from_mins(1), session.wait_for_answer(&id));
    answer.await.unwrap().unwrap();
    assert!(engine.session(session.id()).is_some());
}

/// What is said of a session that cannot be read.
const NO: &str =
    "there is no session stranger that can be read here: `list_threads` names those there are";

/// A stranger, and a parent with a child that looks around: its id, and what it saw.
async fn family(store: &Path) -> (SessionId, Vec<String>) {
    let child_calls = script(&[
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": "parent" })),
        ("thread_read", json!({ "session": "stranger" })),
    ]);
    let task = json!({ "prompt": "look around", "model": "scripted:child" });
    let engine = engine(store, &script(&[("task", task)]), &child_calls);
    session(&engine, "stranger").await;
    let parent = session(&engine, "parent-session").await;
    finish(&engine, &parent).await;
    let filter = SessionFilter {
        parent: Some(parent.id().clone()),
        limit: 10,
        ..SessionFilter::default()
    };
    let child = engine.sessions(filter).await.unwrap().remove(0).id;
    let (_, entries) = engine.history(&child).await.unwrap().remove(0);
    let said = entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message.content()),
        _ => None,
    });
    engine.shutdown().await.unwrap();
    (child, said.collect())
}

#[tokio::test]
async fn a_child_reads_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let (child, said) = family(&folder.path().join("sessions.db")).await;
    let [_, _, listed, _, above, _, refused, done] = &said[..] else {
        panic!("{said:?}");
    };
    let all = format!(
        "this session, {child}\n  default (active, at work, this one)\n\
         the session above, parent-session\n  default (active, at work)"
    );
    assert_eq!(*listed, all);
    assert!(above.contains("] user: go\n"), "{above}");
    assert!(above.contains("calls task {"), "{above}");
    assert_eq!((refused.as_str(), done.as_str()), (NO, "done"));
}

#[tokio::test]
async fn a_parent_reads_its_child() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("sessions.db");
    let (child, _) = family(&store).await;
    let calls = [
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": child })),
        ("thread_read", json!({ "session": "stranger" })),
        ("thread_read", json!({ "session": "never-there" })),
        ("thread_read", json!({ "session": "parent" })),
        ("thread_read", json!({ "thread": "none" })),
    ];
    let seen = go_on(&store, &"parent-session".parse().unwrap(), 2, &calls).await;
    let listed = &seen[0].text;
    let task = format!("task, {child} (terminated)\n  default (active)");
    assert!(listed.ends_with(&task), "{listed}");
    assert_eq!(seen[0].data[1]["relation"], "child");
    let read = &seen[1].text;
    assert!(read.contains("] user: look around\n"), "{read}");
    assert!(
        read.contains("] list_threads (success): this session, "),
        "{read}"
    );
    assert!(read.ends_with("] assistant: done"), "{read}");
    let refused: Vec<_> = seen[2..]
        .iter()
        .map(|it| (it.is_good, it.text.as_str()))
        .collect();
    let never = NO.replace("stranger", "never-there");
    assert_eq!(
        refused,
        [
            (false, NO),
            (false, &never),
            (false, "this session has no parent"),
            (false, "there is no thread none; there are: default"),
        ]
    );
}

#[tokio::test]
async fn tasks_of_one_session_read_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("sessions.db");
    let (first, _) = family(&store).await;
    // The session gives a second task, which looks at the first.
    let looks = script(&[
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": first })),
        ("thread_read", json!({ "session": "stranger" })),
    ]);
    let task = json!({ "prompt": "look beside you", "model": "scripted:child" });
    let engine = engine(&store, &later(2, &[("task", task)]), &looks);
    let parent = "parent-session".parse().unwrap();
    let session = engine.open_session(&parent, Claim::IfFree).await.unwrap();
    finish_next(&engine, &session).await;
    let filter = SessionFilter {
        parent: Some(parent),
        limit: 1,
        ..SessionFilter::default()
    };
    let second = engine.sessions(filter).await.unwrap().remove(0).id;
    assert_ne!(second, first);
    let (_, entries) = engine.history(&second).await.unwrap().remove(0);
    let said = entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message.content()),
        _ => None,
    });
    let said: Vec<_> = said.collect();
    let [_, _, listed, _, beside, _, refused, _] = &said[..] else {
        panic!("{said:?}");
    };
    let other =
        format!("another task of the session above, {first} (terminated)\n  default (active)");
    assert!(listed.ends_with(&other), "{listed}");
    assert!(beside.contains("] user: look around\n"), "{beside}");
    assert_eq!(refused, NO);
}

#[tokio::test]
async fn a_stranger_reads_neither() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("sessions.db");
    let (child, _) = family(&store).await;
    let calls = [
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": child })),
        ("thread_read", json!({ "session": "parent-session" })),
    ];
    let seen = go_on(&store, &"stranger".parse().unwrap(), 0, &calls).await;
    let listed = "this session, stranger\n  default (active, at work, this one)";
    assert_eq!(seen[0].text, listed);
    assert!(!seen[1].is_good && !seen[2].is_good);
}

#[tokio::test]
async fn a_thread_is_read_page_by_page_the_newest_last() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("sessions.db");
    let words: Vec<_> = (0..4)
        .map(|number| json!({ "text": format!("answer {number}") }))
        .collect();
    let first = engine(
        &store,
        &json!({ "steps": words }).to_string(),
        "steps: [{ text: x }]",
    );
    let own = session(&first, "own").await;
    for number in 0..4 {
        let prompt = Prompt {
            thread: Some("side".to_owned()),
            ..Prompt::from(format!("question {number}"))
        };
        let id = own.prompt(prompt).await.unwrap();
        own.wait_for_answer(&id).await.unwrap();
    }
    let ids: Vec<_> = {
        let (_, entries) = first.history(own.id()).await.unwrap().remove(0);
        entries.into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(ids.len(), 8);
    let id = own.id().clone();
    first.shutdown().await.unwrap();
    let read = |before: Option<usize>, limit: usize| {
        let before = before.map(|at| ids[at].clone());
        let mut args = json!({ "thread": "side", "limit": limit });
        if let Some(before) = before {
            args["before"] = json!(before);
        }
        ("thread_read", args)
    };
    let seen = go_on(
        &store,
        &id,
        0,
        &[
            read(None, 3),
            read(Some(5), 3),
            read(Some(2), 3),
            read(Some(0), 3),
            (
                "thread_read",
                json!({ "thread": "side", "before": "nobody" }),
            ),
        ],
    )
    .await;
    let line = |at: usize| {
        let (who, what) = if at.is_multiple_of(2) {
            ("user", "question")
        } else {
            ("assistant", "answer")
        };
        format!("[{}] {who}: {what} {}", ids[at], at / 2)
    };
    let more = |at: usize| {
        format!(
            "[there is more before this: read it with before {}]",
            ids[at]
        )
    };
    assert_eq!(
        seen[0].text,
        [more(5), line(5), line(6), line(7)].join("\n")
    );
    assert_eq!(seen[0].data["before"], json!(ids[5]));
    assert_eq!(
        seen[1].text,
        [more(2), line(2), line(3), line(4)].join("\n")
    );
    assert_eq!(seen[2].text, [line(0), line(1)].join("\n"));
    assert_eq!(seen[3].text, "[nothing was said here yet]");
    assert_eq!(seen[4].text, "the entry of `before` is not in this thread");
}
