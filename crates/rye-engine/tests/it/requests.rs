//! Requests to sessions that this process, another one or no process holds.

use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{EventKind, PromptId, QueueMode, SessionId, SessionStatus, TurnEnd};
use rye_engine::store::{CommandKind, SessionStore, StoreError};
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{BoxFuture, Decision, Engine, EventStream, NewSession, Prompt, WithdrawError};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use rye_testkit::wrapped_store::{StoreWrapper, WrappedStore};
use serde_json::{Value, json};
use tokio::time::timeout;

/// A generous time limit, so that a lost notification fails the test instead of blocking it.
const TIMEOUT: Duration = Duration::from_secs(20);

struct Forward;

impl StoreWrapper for Forward {}

/// A tool that waits for a decision.
struct Ask(ToolDef);

impl Tool for Ask {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = DecisionRequest::approval("key", "go on?");
            let answer = context.request_decision(request).await?;
            Ok(ToolOutput::text(answer.action.to_string()))
        })
    }
}

/// An engine on a shared store, like a process on a shared database.
fn host_with(store: &Arc<dyn SessionStore>, script: &str, runs_sessions: bool) -> Engine {
    let script: Script = script.parse().unwrap();
    let store = WrappedStore {
        store: Arc::clone(store),
        wrapper: Forward,
    };
    let ask = ToolDef::new("ask", "Asks.", json!({ "type": "object" }));
    Engine::builder()
        .store(store)
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(Ask(ask))
        .runs_sessions(runs_sessions)
        .build()
        .unwrap()
}

const ANSWER: &str = "steps: [{ text: hello }]\nafter_last: { text: hello }";
const ENDLESS: &str = "steps: [{ text: hello, delay_ms: 3600000 }]";
const ASK: &str =
    "steps: [{ tool_calls: [{ name: ask }] }, { text: 'it said ${last_tool_result}' }]";

fn store() -> Arc<dyn SessionStore> {
    Arc::new(MemoryStore::new())
}

/// A stored session that nobody holds.
async fn unheld_session(engine: &Engine) -> SessionId {
    let session = engine.create_session(NewSession::default()).await.unwrap();
    session.close().await.unwrap();
    session.id().clone()
}

async fn end_of(engine: &Engine, session: &SessionId, prompt: &PromptId) -> (TurnEnd, String) {
    let answer = timeout(TIMEOUT, engine.answer(session, prompt)).await;
    let answer = answer.unwrap().unwrap();
    (answer.reason, answer.text)
}

/// Reads events until one matches.
async fn next_matching(events: &mut EventStream, matches: impl Fn(&EventKind) -> bool) {
    let search = async {
        while let Some(notice) = events.next().await.unwrap() {
            if matches(&notice.event.kind) {
                return;
            }
        }
        panic!("the stream ended");
    };
    timeout(TIMEOUT, search).await.unwrap();
}

#[tokio::test]
async fn prompt_to_an_unheld_session_is_answered_here_in_a_new_thread() {
    let engine = host_with(&store(), ANSWER, true);
    let session = unheld_session(&engine).await;
    let prompt = Prompt {
        thread: Some("side".to_owned()),
        ..Prompt::from("hi")
    };
    let prompt = engine.submit(&session, prompt).await.unwrap();
    let end = end_of(&engine, &session, &prompt).await;
    assert_eq!(end, (TurnEnd::EndTurn, "hello".to_owned()));
    let threads = engine.threads(&session).await.unwrap();
    let keys: Vec<_> = threads.iter().map(|thread| thread.key.as_str()).collect();
    assert_eq!(keys, ["side"]);
}

#[tokio::test]
async fn prompt_to_a_session_of_another_process_is_answered_there() {
    let store = store();
    let (holder, other) = (
        host_with(&store, ANSWER, true),
        host_with(&store, ENDLESS, true),
    );
    let session = holder.create_session(NewSession::default()).await.unwrap();
    for thread in ["default", "new", "new"] {
        let prompt = Prompt {
            thread: Some(thread.to_owned()),
            ..Prompt::from("hi")
        };
        let prompt = other.submit(session.id(), prompt).await.unwrap();
        let end = end_of(&other, session.id(), &prompt).await;
        assert_eq!(end, (TurnEnd::EndTurn, "hello".to_owned()));
    }
    assert!(other.session(session.id()).is_none());
}

#[tokio::test]
async fn prompt_with_the_same_id_is_accepted_once_from_any_process() {
    let store = store();
    let (holder, other) = (
        host_with(&store, ANSWER, true),
        host_with(&store, ANSWER, true),
    );
    let session = holder.create_session(NewSession::default()).await.unwrap();
    let prompt = |text: &str| Prompt {
        id: Some("key".parse().unwrap()),
        ..Prompt::from(text)
    };
    for engine in [&other, &holder, &other] {
        let id = engine.submit(session.id(), prompt("hi")).await.unwrap();
        end_of(engine, session.id(), &id).await;
    }
    let entries = holder.history(session.id()).await.unwrap();
    assert_eq!(entries[0].1.len(), 2);
    let different = other.submit(session.id(), prompt("bye")).await;
    assert!(matches!(different, Err(StoreError::Conflict { .. })));
}

#[tokio::test]
async fn two_processes_that_submit_at_once_share_one_session() {
    let store = store();
    let hosts = [
        host_with(&store, ANSWER, true),
        host_with(&store, ANSWER, true),
    ];
    let session = unheld_session(&hosts[0]).await;
    let submit = |engine: &Engine| {
        let (engine, session) = (engine.clone(), session.clone());
        tokio::spawn(async move {
            let prompt = engine.submit(&session, "hi").await.unwrap();
            end_of(&engine, &session, &prompt).await
        })
    };
    let answers: Vec<_> = hosts.iter().cycle().take(10).map(submit).collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap().0, TurnEnd::EndTurn);
    }
    let held = hosts.iter().filter(|it| it.session(&session).is_some());
    assert_eq!(held.count(), 1);
}

#[tokio::test]
async fn stream_delivers_every_event_once_while_the_holder_changes() {
    let store = store();
    let hosts = [
        host_with(&store, ANSWER, true),
        host_with(&store, ANSWER, true),
    ];
    let session = unheld_session(&hosts[0]).await;
    let mut streams = Vec::new();
    for host in &hosts {
        streams.push(host.follow(&session, 0).await.unwrap());
    }
    for round in 0..4 {
        let host = &hosts[round % 2];
        let prompt = host.submit(&session, "hi").await.unwrap();
        end_of(host, &session, &prompt).await;
        for stream in &mut streams {
            let is_end = |kind: &EventKind| matches!(kind, EventKind::TurnEnd { prompt: it, .. } if *it == prompt);
            let before = stream.last();
            next_matching(stream, is_end).await;
            let stored = host.events(&session, before, 999).await.unwrap();
            let numbers: Vec<_> = stored.iter().filter_map(|event| event.sequence).collect();
            let expected: Vec<_> = (before + 1..).take(numbers.len()).collect();
            assert_eq!(numbers, expected);
        }
        host.session(&session).unwrap().close().await.unwrap();
    }
}

#[tokio::test]
async fn text_is_streamed_once_the_session_is_open_here() {
    let slow = "steps: [{ text: hello, delay_ms: 200, chunk_chars: 1, chunk_ms: 20 }]";
    let engine = host_with(&store(), slow, true);
    let session = unheld_session(&engine).await;
    let mut events = engine.follow(&session, 0).await.unwrap();
    engine.submit(&session, "hi").await.unwrap();
    next_matching(&mut events, |kind| {
        matches!(kind, EventKind::TextDelta { .. })
    })
    .await;
    assert!(events.is_live());
}

#[tokio::test]
async fn stream_of_a_removed_session_ends() {
    let engine = host_with(&store(), ANSWER, true);
    let session = unheld_session(&engine).await;
    let mut events = engine.follow(&session, 0).await.unwrap();
    engine.remove_session(&session).await.unwrap();
    while let Some(notice) = timeout(TIMEOUT, events.next()).await.unwrap().unwrap() {
        assert!(notice.event.sequence.is_some());
    }
    let unknown = engine.follow(&session, 0).await;
    assert!(matches!(unknown.err(), Some(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn stream_ends_when_the_engine_is_shut_down() {
    let engine = host_with(&store(), ANSWER, true);
    let open = engine.create_session(NewSession::default()).await.unwrap();
    let mut live = engine.follow(open.id(), 0).await.unwrap();
    let unheld = unheld_session(&engine).await;
    let mut stored = engine.follow(&unheld, 0).await.unwrap();
    let drain = async |events: &mut EventStream| while events.next().await.unwrap().is_some() {};
    let drained = async { tokio::join!(drain(&mut live), drain(&mut stored)) };
    let (_, shut_down) = tokio::join!(timeout(TIMEOUT, drained), engine.shutdown());
    shut_down.unwrap();
}

#[tokio::test]
async fn commands_reach_the_holder_from_another_process() {
    let store = store();
    let (holder, other) = (
        host_with(&store, ENDLESS, true),
        host_with(&store, ANSWER, false),
    );
    let session = holder.create_session(NewSession::default()).await.unwrap();
    let id = session.id();
    let running = other.submit(id, "one").await.unwrap();
    let waiting = other.submit(id, "two").await.unwrap();
    let withdrawn = other.submit(id, "three").await.unwrap();
    let mut events = other.follow(id, 0).await.unwrap();
    next_matching(
        &mut events,
        |kind| matches!(kind, EventKind::QueueState { waiting, .. } if waiting.len() == 2),
    )
    .await;
    other.withdraw_prompt(id, &withdrawn).await.unwrap();
    assert_eq!(end_of(&other, id, &withdrawn).await.0, TurnEnd::Withdrawn);
    let again = other.withdraw_prompt(id, &withdrawn).await;
    assert_eq!(again, Err(WithdrawError::Ended(withdrawn)));
    let started = other.withdraw_prompt(id, &running).await;
    assert_eq!(started, Err(WithdrawError::Running(running.clone())));
    other.command(id, None, CommandKind::Abort).await.unwrap();
    for prompt in [&running, &waiting] {
        assert_eq!(end_of(&other, id, prompt).await.0, TurnEnd::Abort);
    }
    let unknown = other.command(id, Some("nowhere"), CommandKind::Abort).await;
    assert!(matches!(
        unknown,
        Err(StoreError::NotFound { kind: "thread", .. })
    ));
}

#[tokio::test]
async fn command_for_an_unheld_session_is_applied_before_anything_continues() {
    let store = store();
    let passive = host_with(&store, ANSWER, false);
    let host = host_with(&store, ENDLESS, true);
    let session = host.create_session(NewSession::default()).await.unwrap();
    let prompt = session.prompt("one").await.unwrap();
    session.close().await.unwrap();
    let id = session.id();
    passive.command(id, None, CommandKind::Abort).await.unwrap();
    assert_eq!(end_of(&passive, id, &prompt).await.0, TurnEnd::Abort);
    passive.command(id, None, CommandKind::Pause).await.unwrap();
    let data = passive.session_data(id).await.unwrap().unwrap();
    assert_eq!(data.status, SessionStatus::Paused);
    assert_eq!(passive.holder(id).await.unwrap(), None);
    passive
        .command(id, None, CommandKind::Resume)
        .await
        .unwrap();
    let data = passive.session_data(id).await.unwrap().unwrap();
    assert_eq!(data.status, SessionStatus::Running);
}

#[tokio::test]
async fn decision_continues_an_unheld_session() {
    let engine = host_with(&store(), ASK, true);
    let session = unheld_session(&engine).await;
    let prompt = engine.submit(&session, "go").await.unwrap();
    let mut events = engine.follow(&session, 0).await.unwrap();
    next_matching(&mut events, |kind| {
        matches!(kind, EventKind::DecisionGate { .. })
    })
    .await;
    engine.session(&session).unwrap().close().await.unwrap();
    let gates = engine.pending_gates(Some(&session)).await.unwrap();
    let decision = Decision::new("approve", "ada", "test");
    engine.decide(&gates[0].id, decision).await.unwrap();
    let end = end_of(&engine, &session, &prompt).await;
    assert_eq!(end, (TurnEnd::EndTurn, "it said approve".to_owned()));
}

#[tokio::test]
async fn withdrawn_gate_fails_its_call_and_the_turn_continues() {
    let store = store();
    let (holder, other) = (host_with(&store, ASK, true), host_with(&store, ASK, false));
    let session = holder.create_session(NewSession::default()).await.unwrap();
    let prompt = other.submit(session.id(), "go").await.unwrap();
    let mut events = other.follow(session.id(), 0).await.unwrap();
    next_matching(&mut events, |kind| {
        matches!(kind, EventKind::DecisionGate { .. })
    })
    .await;
    let gate = other.pending_gates(None).await.unwrap()[0].id.clone();
    other.withdraw_gate(&gate, "not needed").await.unwrap();
    let (reason, text) = end_of(&other, session.id(), &prompt).await;
    assert_eq!(reason, TurnEnd::EndTurn);
    assert!(text.contains("withdrawn"), "{text}");
    let again = other.withdraw_gate(&gate, "not needed").await;
    assert_eq!(again, Err(WithdrawError::GateClosed(gate)));
}

#[tokio::test]
async fn merged_prompts_end_and_have_the_answer_of_both() {
    let store = store();
    let engine = host_with(&store, ANSWER, true);
    let session = unheld_session(&engine).await;
    let prompt = |text: &str| Prompt {
        mode: Some(QueueMode::Collect),
        ..Prompt::from(text)
    };
    let first = engine.submit(&session, prompt("a")).await.unwrap();
    let second = engine.submit(&session, prompt("b")).await.unwrap();
    let mut events = engine.follow(&session, 0).await.unwrap();
    let is_merged = |kind: &EventKind| matches!(kind, EventKind::TurnEnd { prompt, reason: TurnEnd::Merged, .. } if *prompt == second);
    next_matching(&mut events, is_merged).await;
    for prompt in [&first, &second] {
        let end = end_of(&engine, &session, prompt).await;
        assert_eq!(end, (TurnEnd::EndTurn, "hello".to_owned()));
    }
}

#[tokio::test]
async fn answer_of_an_unknown_prompt_is_an_error() {
    let engine = host_with(&store(), ANSWER, true);
    let session = unheld_session(&engine).await;
    let unknown = engine.answer(&session, &PromptId::new()).await;
    assert!(matches!(
        unknown,
        Err(StoreError::NotFound { kind: "prompt", .. })
    ));
    let nowhere = engine.submit(&SessionId::new(), "hi").await;
    assert!(matches!(
        nowhere,
        Err(StoreError::NotFound {
            kind: "session",
            ..
        })
    ));
}

#[tokio::test]
async fn created_session_is_found_by_a_process_that_does_not_hold_it() {
    let store = store();
    let (holder, other) = (
        host_with(&store, ANSWER, true),
        host_with(&store, ANSWER, true),
    );
    let new = || NewSession {
        id: Some("s".parse().unwrap()),
        user_id: Some("ada".to_owned()),
        ..NewSession::default()
    };
    let created = holder.ensure_session(new()).await.unwrap();
    assert_eq!(other.ensure_session(new()).await.unwrap().id, created.id);
    let foreign = NewSession {
        user_id: Some("bob".to_owned()),
        ..new()
    };
    let refused = other.ensure_session(foreign).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })));
}

#[tokio::test]
async fn stream_that_keeps_its_session_running_takes_it_over() {
    let store = store();
    let (holder, other) = (
        host_with(&store, ENDLESS, true),
        host_with(&store, ANSWER, true),
    );
    let session = holder.create_session(NewSession::default()).await.unwrap();
    let prompt = other.submit(session.id(), "hi").await.unwrap();
    let mut events = other.follow(session.id(), 0).await.unwrap().keep_running();
    next_matching(&mut events, |kind| {
        matches!(kind, EventKind::MessageEnd { .. })
    })
    .await;
    session.close().await.unwrap();
    next_matching(&mut events, |kind| {
        matches!(kind, EventKind::TurnEnd { .. })
    })
    .await;
    assert_eq!(end_of(&other, session.id(), &prompt).await.1, "hello");
}
