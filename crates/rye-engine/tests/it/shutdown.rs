//! A host that shuts down does not end sessions that wait for a decision.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::protocol::{EntryKind, EventKind, Role};
use rye_engine::store::Claim;
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Decision, Engine, NewSession, Session};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::{CloseHandle, SqliteStore};
use serde_json::{Value, json};

/// Number of tasks, and of attempts, because the order of the shutdown is random.
const TASKS: usize = 4;
const ATTEMPTS: usize = 8;
const TIMEOUT: Duration = Duration::from_mins(1);

const PARENT: &str = "
steps:
  - tool_calls:
      - { name: task, args: { prompt: a, model: scripted:child } }
      - { name: task, args: { prompt: b, model: scripted:child } }
      - { name: task, args: { prompt: c, model: scripted:child } }
      - { name: task, args: { prompt: d, model: scripted:child } }
  - text: all done
";

const CHILD: &str = "
steps:
  - tool_calls: [{ name: confirm, args: {} }]
  - text: done
";

/// A tool that asks for a decision.
struct AskTool(ToolDef);

impl Tool for AskTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = DecisionRequest::approval("confirm", "may it?");
            context.request_decision(request).await?;
            Ok(ToolOutput::text("it may"))
        })
    }
}

/// An engine, and the handle to wait until its store is closed.
fn engine(dir: &Path) -> (Engine, CloseHandle) {
    let mut store = SqliteStore::open(dir.join("sessions.db")).unwrap();
    let closing = store.close_handle();
    let models = Catalogue::new(".")
        .with("scripted:parent", PARENT.parse().unwrap())
        .with("scripted:child", CHILD.parse().unwrap());
    let engine = Engine::builder()
        .store(store)
        .models(models)
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(rye_tools::tools())
        .tool(AskTool(ToolDef::new("confirm", "Asks.", json!({}))))
        .build()
        .unwrap();
    (engine, closing)
}

/// Number of finished tool calls of a session.
async fn results(session: &Session) -> usize {
    let threads = session.threads();
    let entries = session.entries(&threads[0].id, None, usize::MAX);
    let is_result = |kind: &EntryKind| match kind {
        EntryKind::Message(message) => message.role == Role::Tool,
        _ => false,
    };
    let entries = entries.await.unwrap();
    entries.iter().filter(|it| is_result(&it.kind)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_tasks_survive_the_shutdown_of_their_host() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, mut closing) = engine(dir.path());
    let mut feed = host.feed();
    let new = NewSession {
        model: Some("scripted:parent".to_owned()),
        ..NewSession::default()
    };
    let mut session = host.create_session(new).await.unwrap();
    let (id, prompt) = (session.id().clone(), session.prompt("go").await.unwrap());
    let mut gates = BTreeMap::new();
    while gates.len() < TASKS {
        let notice = feed.next().await.unwrap().unwrap();
        if let EventKind::DecisionGate { gate } = notice.event.kind {
            gates.insert(gate.id, gate.origin.session);
        }
    }
    for _ in 0..ATTEMPTS {
        host.shutdown().await.unwrap();
        drop((host, session));
        tokio::task::block_in_place(|| closing.wait(TIMEOUT));
        (host, closing) = engine(dir.path());
        session = host.open_session(&id, Claim::IfFree).await.unwrap();
        // The tasks are restored when each has an open session.
        while gates.values().any(|task| host.session(task).is_none()) {
            assert_eq!(results(&session).await, 0, "nothing has come of any task");
            tokio::task::yield_now().await;
        }
    }
    for gate in gates.keys() {
        let approve = Decision::new("approve", "ada", "test");
        host.decide(gate, approve).await.unwrap();
    }
    assert_eq!(
        session.wait_for_answer(&prompt).await.unwrap().text,
        "all done"
    );
}
