//! A scripted agent that makes given tool calls.

use std::sync::Arc;
use std::time::Duration;

use lillux::process::Supervisor;
use rye_engine::sandbox::Sandbox;
use rye_engine::store::SessionStore;
use rye_engine::{Decision, Engine, NewSession, Session};
use rye_model::Catalogue;
use rye_protocol::{EntryKind, EventKind, Part, ResultStatus};
use rye_sandbox::{LocalSandbox, VirtualSandbox};
use rye_store::{MemoryBlobs, MemoryStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// Both sandboxes, and the directory of the local one.
pub(crate) fn sandboxes() -> [(Arc<dyn Sandbox>, Option<TempDir>); 2] {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalSandbox::new(dir.path(), Supervisor::start().unwrap()).unwrap();
    [
        (Arc::new(VirtualSandbox::new()), None),
        (Arc::new(local), Some(dir)),
    ]
}

/// The result of a tool call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) is_success: bool,
    pub(crate) text: String,
    pub(crate) data: Value,
    pub(crate) attachments: Vec<Part>,
}

/// A scripted model that makes these calls one after the other.
pub(crate) fn script(calls: &[(&str, Value)]) -> String {
    let step =
        |(name, args): &(&str, Value)| json!({ "tool_calls": [{ "name": name, "args": args }] });
    let mut steps: Vec<_> = calls.iter().map(step).collect();
    steps.push(json!({ "text": "done" }));
    json!({ "steps": steps }).to_string()
}

pub(crate) fn engine(script: &str, sandbox: Arc<dyn Sandbox>, store: impl SessionStore) -> Engine {
    Engine::builder()
        .store(store)
        .blobs(MemoryBlobs::new())
        .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
        .sandbox(sandbox)
        .tools(rye_tools::tools())
        .build()
        .unwrap()
}

/// Prompts, approves every gate, and waits for the end of the turn.
pub(crate) async fn run_turn(engine: &Engine, session: &Session) {
    let mut events = session.subscribe(0);
    session.prompt("go").await.unwrap();
    let turn = async {
        loop {
            match events.next().await.unwrap().unwrap().event.kind {
                EventKind::TurnEnd { .. } => return,
                EventKind::DecisionGate { gate } => {
                    let decision = Decision {
                        action: "approve".into(),
                        value: Value::Null,
                        by: "ada".to_owned(),
                        source: "test".to_owned(),
                    };
                    engine.decide(&gate.id, decision).await.unwrap();
                }
                _ => {}
            }
        }
    };
    timeout(Duration::from_mins(2), turn).await.unwrap();
}

/// The results of all calls of a session, in order.
pub(crate) async fn outcomes(engine: &Engine, session: &Session) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (_, entries) in engine.history(session.id()).await.unwrap() {
        for entry in entries {
            let EntryKind::Message(message) = entry.kind else {
                continue;
            };
            for part in message.parts {
                match part {
                    Part::ToolResult {
                        status, text, data, ..
                    } => outcomes.push(Outcome {
                        is_success: status == ResultStatus::Success,
                        text,
                        data,
                        attachments: Vec::new(),
                    }),
                    part @ Part::Attachment { .. } => {
                        outcomes.last_mut().unwrap().attachments.push(part);
                    }
                    _ => {}
                }
            }
        }
    }
    outcomes
}

/// Makes the calls and returns their results.
pub(crate) async fn calls(sandbox: &Arc<dyn Sandbox>, calls: &[(&str, Value)]) -> Vec<Outcome> {
    let engine = engine(&script(calls), Arc::clone(sandbox), MemoryStore::new());
    let session = engine.create_session(NewSession::default()).await.unwrap();
    run_turn(&engine, &session).await;
    let outcomes = outcomes(&engine, &session).await;
    assert_eq!(outcomes.len(), calls.len());
    engine.shutdown().await.unwrap();
    outcomes
}

/// Makes one call, which must succeed, and returns its text.
pub(crate) async fn call(sandbox: &Arc<dyn Sandbox>, tool: &str, args: Value) -> String {
    let outcome = calls(sandbox, &[(tool, args)]).await.remove(0);
    assert!(outcome.is_success, "{tool}: {}", outcome.text);
    outcome.text
}

/// Makes each call and compares its success and text.
pub(crate) async fn assert_calls(sandbox: &Arc<dyn Sandbox>, cases: &[(&str, Value, bool, &str)]) {
    let all: Vec<_> = cases
        .iter()
        .map(|(tool, args, ..)| (*tool, args.clone()))
        .collect();
    let outcomes = calls(sandbox, &all).await;
    for ((tool, args, is_success, text), outcome) in cases.iter().zip(outcomes) {
        let kind = sandbox.kind();
        assert_eq!(outcome.text, *text, "{kind} {tool} {args}");
        assert_eq!(outcome.is_success, *is_success, "{kind} {tool} {args}");
    }
}
