//! An agent that makes the calls it is told to.

use std::sync::Arc;
use std::time::Duration;

use lillux::process::Supervisor;
use rye_engine::sandbox::Sandbox;
use rye_engine::store::SessionStore;
use rye_engine::{Decision, Engine, NewSession, Session, builtin};
use rye_model::Catalogue;
use rye_protocol::{EntryKind, EventKind, Part, ResultStatus};
use rye_sandbox::{Local, Virtual};
use rye_store::{MemoryStore, MemoryBlobs};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// Each sandbox, with the folder that one of them works in.
pub(crate) fn each() -> [(Arc<dyn Sandbox>, Option<TempDir>); 2] {
    let folder = tempfile::tempdir().unwrap();
    let local = Local::new(folder.path(), Supervisor::start().unwrap()).unwrap();
    [
        (Arc::new(Virtual::new()), None),
        (Arc::new(local), Some(folder)),
    ]
}

/// What came of a call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) is_good: bool,
    pub(crate) text: String,
    pub(crate) data: Value,
    pub(crate) attachments: Vec<Part>,
}

/// A model that makes these calls, one after the other.
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
        .tools(builtin::tools())
        .build()
        .unwrap()
}

/// Prompts, agrees to whatever is asked, and waits for the end.
pub(crate) async fn finish(engine: &Engine, session: &Session) {
    let mut events = session.subscribe(0);
    session.prompt("go").await.unwrap();
    let turn = async {
        loop {
            match events.next().await.unwrap().unwrap().event.kind {
                EventKind::TurnEnd { .. } => return,
                EventKind::DecisionGate { gate } => {
                    let decision = Decision {
                        action: "approve".to_owned(),
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

/// What came of the calls that a session made, in order.
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
                        is_good: status == ResultStatus::Success,
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

/// Makes the calls, and gives what came of each.
pub(crate) async fn calls(sandbox: &Arc<dyn Sandbox>, calls: &[(&str, Value)]) -> Vec<Outcome> {
    let engine = engine(&script(calls), Arc::clone(sandbox), MemoryStore::new());
    let session = engine.create_session(NewSession::default()).await.unwrap();
    finish(&engine, &session).await;
    let outcomes = outcomes(&engine, &session).await;
    assert_eq!(outcomes.len(), calls.len());
    engine.shutdown().await.unwrap();
    outcomes
}

/// The text of one good call.
pub(crate) async fn call(sandbox: &Arc<dyn Sandbox>, tool: &str, args: Value) -> String {
    let outcome = calls(sandbox, &[(tool, args)]).await.remove(0);
    assert!(outcome.is_good, "{tool}: {}", outcome.text);
    outcome.text
}

/// Makes each call and compares what came of it: `ok`, or the error that it is.
pub(crate) async fn table(sandbox: &Arc<dyn Sandbox>, cases: &[(&str, Value, bool, &str)]) {
    let all: Vec<_> = cases
        .iter()
        .map(|(tool, args, ..)| (*tool, args.clone()))
        .collect();
    let outcomes = calls(sandbox, &all).await;
    for ((tool, args, is_good, text), outcome) in cases.iter().zip(outcomes) {
        let kind = sandbox.kind();
        assert_eq!(outcome.text, *text, "{kind} {tool} {args}");
        assert_eq!(outcome.is_good, *is_good, "{kind} {tool} {args}");
    }
}
