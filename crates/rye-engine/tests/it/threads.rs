//! Threads of a session.

use std::path::Path;
use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::protocol::{
    Batch, EventKind, GateRef, GateStatus, Millis, Op, Purpose, QueueMode, ResultStatus,
    Session as SessionData, SessionId, Thread, ThreadStatus,
};
use rye_engine::store::{Claim, PostOutcome, SessionStore as _, StoreError};
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Decision, Engine, NewSession, Prompt, ThreadChange};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::{Value, json};

fn engine(file: &Path) -> Engine {
    let script: Script = "steps: [{ text: hello }]".parse().unwrap();
    Engine::builder()
        .store(SqliteStore::open(file).unwrap())
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .build()
        .unwrap()
}

fn prompt_to(thread: &str) -> Prompt {
    Prompt {
        thread: Some(thread.to_owned()),
        ..Prompt::from("hello")
    }
}

#[tokio::test]
async fn concurrent_prompts_create_one_thread_and_its_event_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir.path().join("sessions.db"));
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let mut events = session.subscribe(0);
    let (one, two) = tokio::join!(
        session.prompt(prompt_to("side")),
        session.prompt(prompt_to("side"))
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(session.threads().len(), 1);
    let (mut starts, mut ended) = (Vec::new(), Vec::new());
    while ended.len() < 2 {
        let event = events.next().await.unwrap().unwrap().event;
        match event.kind {
            EventKind::ThreadStart { key } => starts.push((event.sequence, key)),
            EventKind::TurnEnd { prompt, .. } => ended.push(prompt),
            _ => {}
        }
    }
    assert_eq!(starts, [(Some(1), "side".to_owned())]);
    assert!(ended.contains(&one) && ended.contains(&two), "{ended:?}");
}

#[tokio::test]
async fn prompt_without_a_mode_uses_the_mode_of_its_thread() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sessions.db");
    let store = SqliteStore::open(&file).unwrap();
    let id: SessionId = "s".parse().unwrap();
    collecting_thread(&store, &id).await;
    let engine = engine(&file);
    let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
    session.prompt(prompt_to("side")).await.unwrap();
    let record = store.snapshot(&id).await.unwrap().unwrap();
    assert_eq!(record.prompts[0].mode, QueueMode::Collect);
    assert!(record.prompts[0].collect_until.is_some());
    let prompt = Prompt {
        mode: Some(QueueMode::Steer),
        ..prompt_to("side")
    };
    let steered = session.prompt(prompt).await.unwrap();
    let mut events = session.subscribe(0);
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        if matches!(event.kind, EventKind::TurnEnd { prompt, .. } if prompt == steered) {
            break;
        }
    }
}

/// Creates a session whose thread has the mode `collect`.
async fn collecting_thread(store: &SqliteStore, id: &SessionId) {
    let lease = store.claim(id, Claim::IfFree).await.unwrap();
    let at = Millis(1);
    let session = SessionData::new(id.clone(), Purpose::Interactive, at);
    let thread = Thread {
        id: "t".parse().unwrap(),
        mode: QueueMode::Collect,
        ..Thread::new(id.clone(), "side", at)
    };
    let ops = vec![
        Op::PutSession(Arc::new(session)),
        Op::PutThread(Arc::new(thread)),
    ];
    store.commit(&lease, Batch { ops }).await.unwrap();
    store.release(&lease).await.unwrap();
}

#[tokio::test]
async fn changes_of_a_thread_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sessions.db");
    let store = SqliteStore::open(&file).unwrap();
    let first = engine(&file);
    let session = first.create_session(NewSession::default()).await.unwrap();
    let id = session.id().clone();
    let change = ThreadChange {
        mode: Some(QueueMode::Collect),
        model: Some("scripted:test".to_owned()),
        summary: Some("small talk".to_owned()),
        ..ThreadChange::default()
    };
    session.change_thread(Some("side"), change).await.unwrap();
    session.prompt(prompt_to("side")).await.unwrap();
    let record = store.snapshot(&id).await.unwrap().unwrap();
    assert_eq!(record.prompts[0].mode, QueueMode::Collect);
    let thread = &record.threads[0];
    assert_eq!(thread.model.as_deref(), Some("scripted:test"));
    assert_eq!(thread.summary.as_deref(), Some("small talk"));

    let archive = |archived| ThreadChange {
        archived: Some(archived),
        ..ThreadChange::default()
    };
    session
        .change_thread(Some("side"), archive(true))
        .await
        .unwrap();
    // It stays archived after a pause and in another host.
    session.pause(Some("side")).await.unwrap();
    session.resume(Some("side")).await.unwrap();
    first.shutdown().await.unwrap();
    let second = engine(&file);
    let session = second.open_session(&id, Claim::IfFree).await.unwrap();
    let before = store.snapshot(&id).await.unwrap();
    let refused = session.prompt(prompt_to("side")).await;
    assert_eq!(refused, Err(StoreError::Archived("side".to_owned())));
    assert_eq!(store.snapshot(&id).await.unwrap(), before);
    let record = before.unwrap();
    assert_eq!(record.threads[0].status, ThreadStatus::Archived);
    // Prompts that waited are run when it is active again.
    let waits = record.prompts[0].id.clone();
    session
        .change_thread(Some("side"), archive(false))
        .await
        .unwrap();
    assert_eq!(session.wait_for_answer(&waits).await.unwrap().text, "hello");
}

/// Asks for a decision and returns the outcome.
struct AskTool(ToolDef);

impl Tool for AskTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = DecisionRequest::approval("it", "may it?");
            let answer = context.request_decision(request).await?;
            Ok(ToolOutput::text(answer.action.as_str()))
        })
    }
}

#[tokio::test]
async fn withdrawn_gate_is_closed_and_its_references_are_kept() {
    let script = "{ steps: [{ tool_calls: [{ name: asks }] }, { text: '${last_tool_result}' }] }";
    let def = ToolDef::new("asks", "Asks a question.", json!({ "type": "object" }));
    let engine = Engine::builder()
        .store(rye_store::MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(AskTool(def))
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let mut events = session.subscribe(0);
    let prompt = session.prompt("go").await.unwrap();
    let gate = loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let EventKind::DecisionGate { gate } = event.kind {
            break gate.id;
        }
    };
    let shown = GateRef {
        gate: gate.clone(),
        channel: "slack:T1:C2".to_owned(),
        message: "17.5".to_owned(),
    };
    session.record_gate_ref(shown.clone()).await.unwrap();
    let refs = engine.gate_refs(&gate).await.unwrap();
    assert_eq!(refs, std::slice::from_ref(&shown));
    let other = engine.create_session(NewSession::default()).await.unwrap();
    let of_other = StoreError::NotFound {
        kind: "gate",
        id: gate.to_string(),
    };
    assert_eq!(other.record_gate_ref(shown).await, Err(of_other.clone()));
    assert_eq!(other.withdraw_gate(&gate, "mine").await, Err(of_other));

    session
        .withdraw_gate(&gate, "no user is present")
        .await
        .unwrap();
    let answer = session.wait_for_answer(&prompt).await.unwrap();
    assert_eq!(answer.text, "the gate was withdrawn");
    let again = session.withdraw_gate(&gate, "again").await;
    assert_eq!(again, Err(StoreError::GateClosed(gate.clone())));
    let late = Decision::new("approve", "ada", "test");
    let late = engine.decide(&gate, late).await.unwrap();
    assert!(
        matches!(&late, PostOutcome::GateClosed(GateStatus::Withdrawn { reason, .. }) if reason == "no user is present"),
        "{late:?}"
    );
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let EventKind::ToolEnd { status, .. } = event.kind {
            assert_eq!(status, ResultStatus::Error);
            break;
        }
    }
}
