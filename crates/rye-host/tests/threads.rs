//! Threads of a session, as a host sees them.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;

use rye_engine::protocol::{
    Batch, EventKind, Millis, Op, QueueMode, Session as SessionData, SessionId, Thread,
};
use rye_engine::store::{Claim, SessionStore as _};
use rye_engine::{Engine, NewSession, Prompt};
use rye_model::{Catalogue, Script};
use rye_sandbox::Virtual;
use rye_store::Sqlite;
use serde_json::json;

fn engine(file: &Path) -> Engine {
    let script: Script = "steps: [{ text: hello }]".parse().unwrap();
    Engine::builder()
        .store(Sqlite::open(file).unwrap())
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(Virtual::new()))
        .build()
        .unwrap()
}

fn to(thread: &str) -> Prompt {
    Prompt {
        thread: Some(thread.to_owned()),
        ..Prompt::from("hello")
    }
}

#[tokio::test]
async fn two_prompts_at_once_make_one_thread_and_it_is_told_first() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(&folder.path().join("sessions.db"));
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let mut events = session.subscribe(0);
    let (one, two) = tokio::join!(session.prompt(to("side")), session.prompt(to("side")));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(session.threads().len(), 1);
    let (mut starts, mut ended) = (Vec::new(), Vec::new());
    while ended.len() < 2 {
        let event = events.next().await.unwrap().unwrap().event;
        match event.kind {
            EventKind::ThreadStart { key } => starts.push((event.sequence, key)),
            EventKind::TurnEnd { item, .. } => ended.push(item),
            _ => {}
        }
    }
    assert_eq!(starts, [(Some(1), "side".to_owned())]);
    assert!(ended.contains(&one) && ended.contains(&two), "{ended:?}");
}

#[tokio::test]
async fn a_prompt_that_does_not_say_is_taken_as_its_thread_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let store = Sqlite::open(&file).unwrap();
    let id: SessionId = "s".parse().unwrap();
    collecting_thread(&store, &id).await;
    let engine = engine(&file);
    let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
    session.prompt(to("side")).await.unwrap();
    let record = store.record(&id).await.unwrap().unwrap();
    assert_eq!(record.items[0].mode, QueueMode::Collect);
    assert!(record.items[0].collect_until.is_some());
    let said = Prompt {
        mode: Some(QueueMode::Steer),
        ..to("side")
    };
    let steered = session.prompt(said).await.unwrap();
    let mut events = session.subscribe(0);
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        if matches!(event.kind, EventKind::TurnEnd { item, .. } if item == steered) {
            break;
        }
    }
}

/// Writes a session down whose thread collects.
async fn collecting_thread(store: &Sqlite, id: &SessionId) {
    let lease = store.claim(id, Claim::IfFree).await.unwrap();
    let at = Millis(1);
    let session: SessionData = serde_json::from_value(json!({
        "id": id, "user_id": null, "org_id": null, "workspace": null, "purpose": "interactive",
        "status": "running", "sandbox": null, "snapshot_id": null, "parent": null, "depth": 0,
        "model": null, "limits": {}, "usage": rye_engine::protocol::Usage::default(),
        "metadata": {}, "created_at": at, "updated_at": at,
    }))
    .unwrap();
    let thread: Thread = serde_json::from_value(json!({
        "id": "t", "session": id, "key": "side", "status": "active", "leaf": null,
        "mode": "collect", "model": null, "summary": null, "turn": null, "metadata": {},
        "created_at": at, "updated_at": at,
    }))
    .unwrap();
    let ops = vec![
        Op::PutSession(Box::new(session)),
        Op::PutThread(Box::new(thread)),
    ];
    store.commit(&lease, Batch { ops }).await.unwrap();
    store.release(&lease).await.unwrap();
}
