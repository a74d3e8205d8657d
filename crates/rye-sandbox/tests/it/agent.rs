//! An agent with engine, store, model, sandbox and tools together.

use std::sync::Arc;
use std::time::Duration;

use lillux::process::Supervisor;
use rye_engine::model::Model as _;
use rye_engine::protocol::SandboxKind;
use rye_engine::sandbox::Sandbox;
use rye_engine::{Decision, Engine, NewSession, Session};
use rye_model::{Catalogue, Script, ScriptedModel};
use rye_protocol::{
    Entry, EntryKind, ErrorCode, EventKind, Gate, Message, Part, ResultStatus, Role, TurnEnd,
};
use rye_sandbox::{LocalSandbox, VirtualSandbox};
use rye_store::MemoryStore;
use tokio::time::timeout;

fn engine(script: &str, sandbox: Arc<dyn Sandbox>) -> Engine {
    let script: Script = script.parse().unwrap();
    assert!(ScriptedModel::from(script.clone()).info().context_window > 0);
    Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(sandbox)
        .tools(rye_tools::tools())
        .build()
        .unwrap()
}

/// Prompts, waits for the end of the turn and for the live output `printed`, and returns all
/// messages. Subscribes before prompting, because live output is not replayed.
async fn prompt_and_wait(session: &Session, prompt: &str, printed: &str) -> Vec<Message> {
    let mut events = session.subscribe(0);
    let turn = async {
        let (mut live, mut end) = (String::new(), None);
        while end.is_none() || live.len() < printed.len() {
            let event = events.next().await.unwrap().unwrap();
            match event.event.kind {
                EventKind::ToolOutput { text, .. } => live.push_str(&text),
                EventKind::TurnEnd { reason, .. } => end = Some(reason),
                _ => {}
            }
        }
        (live, end)
    };
    let turn = timeout(Duration::from_secs(30), turn);
    let (turn, prompted) = tokio::join!(turn, session.prompt(prompt));
    prompted.unwrap();
    let (live, end) = turn.unwrap();
    assert!(live.starts_with(printed), "{live}");
    assert_eq!(end, Some(TurnEnd::EndTurn));
    let thread = &session.threads()[0].id;
    let entries = session.entries(thread, None, 100).await.unwrap();
    let message = |entry: Entry| match entry.kind {
        EntryKind::Message(message) => Some(message),
        _ => None,
    };
    entries.into_iter().filter_map(message).collect()
}

const SAYS_HI: &str = "
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt; cat out.txt' } }]
  - text: 'It said: ${last_tool_result}'
";

/// Waits for the first gate and decides.
async fn decide(engine: &Engine, session: &Session, action: &str) -> Gate {
    let mut events = session.subscribe(0);
    loop {
        let event = events.next().await.unwrap().unwrap();
        if let EventKind::DecisionGate { gate } = event.event.kind {
            let decision = Decision {
                action: action.into(),
                value: serde_json::Value::Null,
                by: "ada".to_owned(),
                source: "test".to_owned(),
            };
            engine.decide(&gate.id, decision).await.unwrap();
            return *gate;
        }
    }
}

async fn says_hi(sandbox: Arc<dyn Sandbox>) {
    let engine = engine(SAYS_HI, Arc::clone(&sandbox));
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let messages = if sandbox.kind() == SandboxKind::Local {
        let answer = prompt_and_wait(&session, "say hi", "hi\n");
        let (messages, gate) = tokio::join!(answer, decide(&engine, &session, "approve"));
        assert_eq!(gate.title, "run: echo hi > out.txt; cat out.txt");
        let dir = sandbox.working_dir().unwrap();
        let body = format!(
            "directory: {dir}\nRuns without a sandbox.\nrisk: high\n│ echo hi > out.txt; cat out.txt"
        );
        assert_eq!(gate.body, body);
        messages
    } else {
        prompt_and_wait(&session, "say hi", "hi\n").await
    };
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
    );
    assert_eq!(messages[3].content(), "It said: hi");
    assert_eq!(sandbox.read("out.txt").await.unwrap(), b"hi\n");
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn agent_runs_a_command_in_memory() {
    Box::pin(says_hi(Arc::new(VirtualSandbox::new()))).await;
}

#[tokio::test]
async fn agent_runs_a_command_on_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalSandbox::new(dir.path(), Supervisor::start().unwrap()).unwrap();
    Box::pin(says_hi(Arc::new(local))).await;
}

#[tokio::test]
async fn denied_command_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalSandbox::new(dir.path(), Supervisor::start().unwrap()).unwrap();
    let engine = engine(SAYS_HI, Arc::new(local));
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let answer = prompt_and_wait(&session, "say hi", "");
    let (messages, _) = tokio::join!(answer, decide(&engine, &session, "deny"));
    let results: Vec<_> = messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolResult { error, .. } => error.as_ref().map(|error| error.code),
            _ => None,
        })
        .collect();
    assert_eq!(results, [ErrorCode::Denied]);
    let answer = messages.last().unwrap().content();
    assert_eq!(answer, "It said: denied by ada");
    assert!(!dir.path().join("out.txt").exists());
}

#[tokio::test]
async fn agent_writes_and_reads_files_and_gets_errors() {
    let script = "
steps:
  - tool_calls:
      - { name: write, args: { path: notes/todo.txt, content: \"one\\ntwo\\nthree\\n\" } }
  - tool_calls:
      - { name: read, args: { path: notes/todo.txt, offset: 2, limit: 1 } }
      - { name: read, args: { path: notes/tod.txt } }
      - { name: read, args: { path: notes } }
      - { name: read, args: { path: ../secret } }
      - { name: read, args: { path: notes/todo.txt, offset: 0 } }
      - { name: write, args: { path: notes, content: x } }
      - { name: bash, args: { command: 'cat missing' } }
      - { name: bash, args: { command: 'sleep 60', timeout: 0.05 } }
      - { name: bash, args: { command: pwd, cwd: notes } }
  - text: done
";
    let engine = engine(script, Arc::new(VirtualSandbox::new()));
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let messages = prompt_and_wait(&session, "go", "").await;
    let mut results: Vec<_> = messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolResult {
                call_id,
                status,
                text,
                ..
            } => Some((call_id.as_str(), *status, text.as_str())),
            _ => None,
        })
        .collect();
    results.sort_by_key(|(call, ..)| *call);
    let (good, bad) = (ResultStatus::Success, ResultStatus::Error);
    let expected = [
        (good, "notes/todo.txt: 3 lines, 14 bytes (created)"),
        (good, "2\ttwo\n[lines 2 to 2 of 3; continue with offset 3]"),
        (bad, "there is no notes/tod.txt; similar: notes/todo.txt"),
        (good, "[notes is a directory]\ntodo.txt (14 bytes)"),
        (bad, "../secret is outside of the workspace"),
        (bad, "invalid arguments: /offset"),
        (bad, "notes: "),
        (good, "[stderr]\ncat: "),
        (good, "[timed out after 0.05 s"),
        (good, "/workspace/notes"),
    ];
    assert_eq!(results.len(), expected.len());
    for ((call, status, text), (wanted, words)) in results.iter().zip(expected) {
        assert_eq!(*status, wanted, "{call} {text}");
        assert!(text.starts_with(words), "{call}: {text}");
    }
    assert_eq!(messages.last().unwrap().content(), "done");
}
