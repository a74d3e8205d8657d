//! `thread_read` and `list_threads`.

use std::path::Path;
use std::sync::Arc;

use rye_engine::sandbox::Sandbox;
use rye_engine::store::{Claim, SessionFilter};
use rye_engine::{Engine, NewSession, Prompt, Session};
use rye_model::Catalogue;
use rye_protocol::{EntryKind, SessionId};
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryBlobs, SqliteStore};
use serde_json::{Value, json};

use super::agent::{Outcome, outcomes, run_turn, script};

/// An engine with two models and an existing store.
fn engine(store: &Path, main: &str, child: &str) -> Engine {
    let sandbox: Arc<dyn Sandbox> = Arc::new(VirtualSandbox::new());
    let models = Catalogue::new(".")
        .with("scripted:test", main.parse().unwrap())
        .with("scripted:child", child.parse().unwrap());
    Engine::builder()
        .store(SqliteStore::open(store).unwrap())
        .blobs(MemoryBlobs::new())
        .models(models)
        .sandbox(sandbox)
        .tools(rye_tools::tools())
        .build()
        .unwrap()
}

/// A script that makes these calls after the given number of answers.
fn script_after(answers: usize, calls: &[(&str, Value)]) -> String {
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

/// Opens a session again and makes these calls, after the given number of answers.
async fn reopen_and_call(
    store: &Path,
    id: &SessionId,
    answers: usize,
    calls: &[(&str, Value)],
) -> Vec<Outcome> {
    let engine = engine(store, &script_after(answers, calls), "steps: [{ text: x }]");
    let session = engine.open_session(id, Claim::IfFree).await.unwrap();
    let before = outcomes(&engine, &session).await.len();
    prompt_and_wait(&engine, &session).await;
    let all = outcomes(&engine, &session).await;
    engine.shutdown().await.unwrap();
    all[before..].to_vec()
}

/// Prompts again and waits for the answer.
async fn prompt_and_wait(engine: &Engine, session: &Session) {
    let id = session.prompt("go on").await.unwrap();
    let answer = tokio::time::timeout(
        std::time::Duration::from_mins(1),
        session.wait_for_answer(&id),
    );
    answer.await.unwrap().unwrap();
    assert!(engine.session(session.id()).is_some());
}

/// Error message for a session that cannot be read.
const NOT_READABLE: &str = "session unrelated does not exist or cannot be read from here; \
    `list_threads` lists the sessions you can read";

/// Creates an unrelated session, and a parent with a child that lists and reads threads. Returns
/// the id of the child and its messages.
async fn family(store: &Path) -> (SessionId, Vec<String>) {
    let child_calls = script(&[
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": "parent" })),
        ("thread_read", json!({ "session": "unrelated" })),
    ]);
    let task = json!({ "prompt": "look around", "model": "scripted:child" });
    let engine = engine(store, &script(&[("task", task)]), &child_calls);
    session(&engine, "unrelated").await;
    let parent = session(&engine, "parent-session").await;
    run_turn(&engine, &parent).await;
    let filter = SessionFilter {
        parent: Some(parent.id().clone()),
        limit: 10,
        ..SessionFilter::default()
    };
    let child = engine.sessions(filter).await.unwrap().remove(0).id;
    let (_, entries) = engine.history(&child).await.unwrap().remove(0);
    let messages = entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message.content()),
        _ => None,
    });
    engine.shutdown().await.unwrap();
    (child, messages.collect())
}

#[tokio::test]
async fn child_reads_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let (child, messages) = family(&dir.path().join("sessions.db")).await;
    let [_, _, listed, _, above, _, refused, done] = &messages[..] else {
        panic!("{messages:?}");
    };
    let all = format!(
        "this session, {child}\n  default (active, running, current)\n\
         parent session, parent-session\n  default (active, running)"
    );
    assert_eq!(*listed, all);
    assert!(above.contains("] user: go\n"), "{above}");
    assert!(above.contains("calls task {"), "{above}");
    assert_eq!((refused.as_str(), done.as_str()), (NOT_READABLE, "done"));
}

#[tokio::test]
async fn parent_reads_its_child() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("sessions.db");
    let (child, _) = family(&store).await;
    let calls = [
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": child })),
        ("thread_read", json!({ "session": "unrelated" })),
        ("thread_read", json!({ "session": "never-there" })),
        ("thread_read", json!({ "session": "parent" })),
        ("thread_read", json!({ "thread": "none" })),
    ];
    let results = reopen_and_call(&store, &"parent-session".parse().unwrap(), 2, &calls).await;
    let listed = &results[0].text;
    let task = format!("task, {child} (terminated)\n  default (active)");
    assert!(listed.ends_with(&task), "{listed}");
    assert_eq!(results[0].data[1]["relation"], "child");
    let read = &results[1].text;
    assert!(read.contains("] user: look around\n"), "{read}");
    assert!(
        read.contains("] list_threads (success): this session, "),
        "{read}"
    );
    assert!(read.ends_with("] assistant: done"), "{read}");
    let refused: Vec<_> = results[2..]
        .iter()
        .map(|it| (it.is_success, it.text.as_str()))
        .collect();
    let never = NOT_READABLE.replace("unrelated", "never-there");
    assert_eq!(
        refused,
        [
            (false, NOT_READABLE),
            (false, &never),
            (false, "this session has no parent"),
            (false, "no thread none; threads: default"),
        ]
    );
}

#[tokio::test]
async fn sibling_tasks_read_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("sessions.db");
    let (first, _) = family(&store).await;
    // The session creates a second task, which reads the first one.
    let child_calls = script(&[
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": first })),
        ("thread_read", json!({ "session": "unrelated" })),
    ]);
    let task = json!({ "prompt": "look beside you", "model": "scripted:child" });
    let engine = engine(&store, &script_after(2, &[("task", task)]), &child_calls);
    let parent = "parent-session".parse().unwrap();
    let session = engine.open_session(&parent, Claim::IfFree).await.unwrap();
    prompt_and_wait(&engine, &session).await;
    let filter = SessionFilter {
        parent: Some(parent),
        limit: 1,
        ..SessionFilter::default()
    };
    let second = engine.sessions(filter).await.unwrap().remove(0).id;
    assert_ne!(second, first);
    let (_, entries) = engine.history(&second).await.unwrap().remove(0);
    let messages = entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message.content()),
        _ => None,
    });
    let messages: Vec<_> = messages.collect();
    let [_, _, listed, _, beside, _, refused, _] = &messages[..] else {
        panic!("{messages:?}");
    };
    let other = format!("sibling task, {first} (terminated)\n  default (active)");
    assert!(listed.ends_with(&other), "{listed}");
    assert!(beside.contains("] user: look around\n"), "{beside}");
    assert_eq!(refused, NOT_READABLE);
}

#[tokio::test]
async fn unrelated_session_reads_neither() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("sessions.db");
    let (child, _) = family(&store).await;
    let calls = [
        ("list_threads", json!({})),
        ("thread_read", json!({ "session": child })),
        ("thread_read", json!({ "session": "parent-session" })),
    ];
    let results = reopen_and_call(&store, &"unrelated".parse().unwrap(), 0, &calls).await;
    let listed = "this session, unrelated\n  default (active, running, current)";
    assert_eq!(results[0].text, listed);
    assert!(!results[1].is_success && !results[2].is_success);
}

#[tokio::test]
async fn thread_is_read_in_pages_with_the_newest_entry_last() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("sessions.db");
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
    let results = reopen_and_call(
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
                json!({ "thread": "side", "before": "unknown" }),
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
    let more = |at: usize| format!("[earlier entries: continue with before {}]", ids[at]);
    assert_eq!(
        results[0].text,
        [more(5), line(5), line(6), line(7)].join("\n")
    );
    assert_eq!(results[0].data["before"], json!(ids[5]));
    assert_eq!(
        results[1].text,
        [more(2), line(2), line(3), line(4)].join("\n")
    );
    assert_eq!(results[2].text, [line(0), line(1)].join("\n"));
    assert_eq!(results[3].text, "[no entries]");
    assert_eq!(results[4].text, "entry `before` is not in this thread");
}
