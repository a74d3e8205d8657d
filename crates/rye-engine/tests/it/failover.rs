//! Retries and failover of models, recorded before they happen.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::protocol::{EntryKind, EventKind, Message, SessionId, TurnEnd};
use rye_engine::store::Claim;
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Engine, NewSession, Session, Subscription};
use rye_model::{Catalogue, Config, ConfigFile};
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::{Value, json};

struct WeatherTool(ToolDef);

impl Tool for WeatherTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok(ToolOutput::text("sunny")) })
    }
}

/// Two models, `a/one` (Anthropic) and `b/two` (chat), with failover to the second.
fn engine(file: &Path, one: &MockProvider, two: &MockProvider, more: &str) -> Engine {
    let text = format!(
        "default: a/one\n\
         {more}\n\
         providers:\n  \
           a: {{ api: anthropic, base_url: '{}/v1', models: {{ one: {{ thinking: effort }} }} }}\n  \
           b: {{ api: openai-chat, base_url: '{}/v1', models: {{ two: {{}} }} }}\n  \
           c: {{ api: openai-chat, base_url: '{1}/v1', api_key_env: NO_SUCH_KEY_IS_SET, models: {{ keyless: {{}} }} }}\n",
        one.url(),
        two.url(),
    );
    let path = "models.yaml".into();
    let config = Config::merge(&[ConfigFile { path, text }]).unwrap();
    let weather = ToolDef::new("weather", "The weather.", json!({ "type": "object" }));
    Engine::builder()
        .store(SqliteStore::open(file).unwrap())
        .models(Catalogue::new(".").with_config(config))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(WeatherTool(weather))
        .build()
        .unwrap()
}

const QUICK: &str = "failover: [b/two]\nretry: { max_attempts: 3, initial_delay_ms: 1 }";

fn busy(status: u16) -> Reply {
    Reply::json(status, &Api::Anthropic.error_body(status, "busy"))
}

async fn open(engine: &Engine) -> (Session, Subscription) {
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let events = session.subscribe(0);
    (session, events)
}

/// Events about models until the turn ends, and its end reason.
async fn model_events(events: &mut Subscription) -> (Vec<String>, TurnEnd) {
    let mut all = Vec::new();
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        let is_written = event.sequence.is_some();
        match event.kind {
            EventKind::ModelRetry {
                model, attempts, ..
            } => {
                assert!(is_written);
                all.push(format!("{model} again after {attempts}"));
            }
            EventKind::ModelSwitched { from, to, .. } => {
                assert!(is_written);
                all.push(format!("{from} to {to}"));
            }
            EventKind::Error { error } => all.push(error.message),
            EventKind::MessageStart => all.push("starts".to_owned()),
            EventKind::TurnEnd { reason, .. } => return (all, reason),
            _ => {}
        }
    }
}

async fn last(session: &Session) -> Message {
    let thread = &session.threads()[0].id;
    let entries = session.entries(thread, None, 100).await.unwrap();
    match &entries.last().unwrap().kind {
        EntryKind::Message(message) => message.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn failing_model_is_retried_and_then_replaced_during_the_turn() {
    let dir = tempfile::tempdir().unwrap();
    let call =
        Completion::call("toolu_1", "weather", json!({})).with_thinking("Let me look.", "c2VhbA==");
    let one = MockProvider::with_replies([
        busy(529),
        Reply::stream(Api::Anthropic.stream(&call)),
        busy(503),
    ]);
    let two = MockProvider::with_replies([Reply::stream(
        Api::OpenAiChat.stream(&Completion::text("It is sunny.")),
    )]);
    let engine = engine(&dir.path().join("s.db"), &one, &two, QUICK);
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    let (all, end) = model_events(&mut events).await;
    assert_eq!(end, TurnEnd::EndTurn);
    assert_eq!(
        all,
        [
            "a/one again after 1",
            "a/one again after 1",
            "a/one again after 2",
            "a/one to b/two",
            "starts",
        ]
    );
    let answer = last(&session).await;
    assert_eq!(answer.content(), "It is sunny.");
    assert_eq!(answer.model.as_deref(), Some("b/two"));
    // The second model gets the reasoning and results of the first as text.
    let sent = two.requests().pop().unwrap().body["messages"].to_string();
    assert!(
        sent.contains("<thinking>\\nLet me look.\\n</thinking>"),
        "{sent}"
    );
    assert!(sent.contains("sunny") && !sent.contains("c2VhbA"), "{sent}");
}

#[tokio::test]
async fn output_of_a_broken_stream_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let events = Api::Anthropic.stream(&Completion::text("one two three"));
    let cut = events.find("three").unwrap();
    let one = MockProvider::with_replies([
        Reply::stream(events.clone()).disconnect_after(cut),
        Reply::stream(events),
    ]);
    let engine = engine(&dir.path().join("s.db"), &one, &one, QUICK);
    let (session, mut events) = open(&engine).await;
    session.prompt("count").await.unwrap();
    let (all, end) = model_events(&mut events).await;
    assert_eq!(all, ["starts", "a/one again after 1", "starts"]);
    assert_eq!(end, TurnEnd::EndTurn);
    assert_eq!(last(&session).await.content(), "one two three");
}

#[tokio::test]
async fn model_without_a_key_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (
        MockProvider::with_replies([busy(529)]),
        MockProvider::with_replies([busy(529)]),
    );
    let more = "failover: [c/keyless, b/two, no/such]\nallow: ['a/*', 'c/*']\nretry: { max_attempts: 2, initial_delay_ms: 1 }";
    let engine = engine(&dir.path().join("s.db"), &one, &two, more);
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    let (all, end) = model_events(&mut events).await;
    assert_eq!(end, TurnEnd::Error);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].contains("tried 2 times"), "{all:?}");
    assert!(two.requests().is_empty());
}

#[tokio::test]
async fn permanently_overloaded_model_fails_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let reply = Reply::json(429, &Api::Anthropic.error_body(429, "slow down"));
    let one = MockProvider::with_replies([reply.header("retry-after", "0")]);
    let engine = engine(&dir.path().join("s.db"), &one, &one, "");
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    let (all, end) = model_events(&mut events).await;
    assert_eq!((end, one.requests().len()), (TurnEnd::Error, 3));
    let error = all.last().unwrap();
    assert!(error.contains("slow down; tried 3 times"), "{error}");
    assert!(error.contains("`failover` in models.yaml"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_turn_uses_the_failover_model() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let one = MockProvider::with_replies([busy(529)]);
    let answer = Api::OpenAiChat.stream(&Completion::text("It is sunny."));
    let two = MockProvider::with_replies([
        Reply::stream(answer.clone()).stall_after(0),
        Reply::stream(answer),
    ]);
    let id: SessionId = "s".parse().unwrap();
    {
        let engine = engine(&file, &one, &two, QUICK);
        let new = NewSession {
            id: Some(id.clone()),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await.unwrap();
        session.prompt("weather?").await.unwrap();
        let asked = || two.wait_for_requests(1, Duration::from_secs(20));
        assert!(tokio::task::block_in_place(asked));
        engine.shutdown().await.unwrap();
    }
    let asked = one.requests().len();
    let engine = engine(&file, &one, &two, QUICK);
    let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
    let mut events = session.subscribe(0);
    let (_, end) = model_events(&mut events).await;
    assert_eq!(end, TurnEnd::EndTurn);
    assert_eq!(last(&session).await.content(), "It is sunny.");
    assert_eq!(one.requests().len(), asked);
    assert_eq!(two.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_does_not_wait_for_the_next_retry() {
    let dir = tempfile::tempdir().unwrap();
    let reply = busy(503).header("retry-after", "50");
    let one = MockProvider::with_replies([reply]);
    let engine = engine(&dir.path().join("s.db"), &one, &one, "");
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let EventKind::ModelRetry { wait_ms, .. } = event.kind {
            assert_eq!(wait_ms, 50_000);
            break;
        }
    }
    session.abort(None).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), model_events(&mut events)).await;
    assert_eq!(ended.unwrap().1, TurnEnd::Abort);
    assert_eq!(one.requests().len(), 1);
}
