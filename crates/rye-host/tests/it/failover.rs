//! A model that does not answer: asked again, replaced by another, or told of, and each
//! step written down before it is taken.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::protocol::{EntryKind, EventKind, Message, SessionId, TurnEnd};
use rye_engine::store::Claim;
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Engine, NewSession, Session, Subscription};
use rye_model::{Catalogue, Config, ConfigFile};
use rye_model_mock::{Api, Completion, MockProvider, Reply};
use rye_sandbox::Virtual;
use rye_store::SqliteStore;
use serde_json::{Value, json};

struct Weather(ToolDef);

impl Tool for Weather {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok(ToolOutput::text("sunny")) })
    }
}

/// Two models, `a/one` (Anthropic) and `b/two` (chat), the second in place of the first.
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
        .sandbox(Arc::new(Virtual::new()))
        .tool(Weather(weather))
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

/// What is written down of models until a turn ends, in short, and how it ends.
async fn told(events: &mut Subscription) -> (Vec<String>, TurnEnd) {
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
            EventKind::MessageStart => all.push("speaks".to_owned()),
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
async fn a_model_is_asked_again_and_then_another_takes_over_amid_the_turn() {
    let folder = tempfile::tempdir().unwrap();
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
    let engine = engine(&folder.path().join("s.db"), &one, &two, QUICK);
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    let (all, end) = told(&mut events).await;
    assert_eq!(end, TurnEnd::EndTurn);
    assert_eq!(
        all,
        [
            "a/one again after 1",
            "a/one again after 1",
            "a/one again after 2",
            "a/one to b/two",
            "speaks",
        ]
    );
    let answer = last(&session).await;
    assert_eq!(answer.content(), "It is sunny.");
    assert_eq!(answer.model.as_deref(), Some("b/two"));
    // What the first has thought and done is there for the second, in words.
    let sent = two.requests().pop().unwrap().body["messages"].to_string();
    assert!(
        sent.contains("<thinking>\\nLet me look.\\n</thinking>"),
        "{sent}"
    );
    assert!(sent.contains("sunny") && !sent.contains("c2VhbA"), "{sent}");
}

#[tokio::test]
async fn what_a_broken_stream_said_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let events = Api::Anthropic.stream(&Completion::text("one two three"));
    let cut = events.find("three").unwrap();
    let one = MockProvider::with_replies([
        Reply::stream(events.clone()).disconnect_after(cut),
        Reply::stream(events),
    ]);
    let engine = engine(&folder.path().join("s.db"), &one, &one, QUICK);
    let (session, mut events) = open(&engine).await;
    session.prompt("count").await.unwrap();
    let (all, end) = told(&mut events).await;
    assert_eq!(all, ["speaks", "a/one again after 1", "speaks"]);
    assert_eq!(end, TurnEnd::EndTurn);
    assert_eq!(last(&session).await.content(), "one two three");
}

#[tokio::test]
async fn a_model_that_may_not_be_used_is_never_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (
        MockProvider::with_replies([busy(529)]),
        MockProvider::with_replies([busy(529)]),
    );
    let more = "failover: [c/keyless, b/two, no/such]\nallow: ['a/*', 'c/*']\nretry: { max_attempts: 2, initial_delay_ms: 1 }";
    let engine = engine(&folder.path().join("s.db"), &one, &two, more);
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    let (all, end) = told(&mut events).await;
    assert_eq!(end, TurnEnd::Error);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].contains("tried 2 times"), "{all:?}");
    assert!(two.requests().is_empty());
}

#[tokio::test]
async fn one_that_is_busy_for_ever_is_given_up_with_a_word_on_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let reply = Reply::json(429, &Api::Anthropic.error_body(429, "slow down"));
    let one = MockProvider::with_replies([reply.header("retry-after", "0")]);
    let engine = engine(&folder.path().join("s.db"), &one, &one, "");
    let (session, mut events) = open(&engine).await;
    session.prompt("weather?").await.unwrap();
    let (all, end) = told(&mut events).await;
    assert_eq!((end, one.requests().len()), (TurnEnd::Error, 3));
    let why = all.last().unwrap();
    assert!(why.contains("slow down; tried 3 times"), "{why}");
    assert!(why.contains("`failover` in models.yaml"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_model_that_took_over_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let one = MockProvider::with_replies([busy(529)]);
    let said = Api::OpenAiChat.stream(&Completion::text("It is sunny."));
    let two = MockProvider::with_replies([
        Reply::stream(said.clone()).stall_after(0),
        Reply::stream(said),
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
    let (_, end) = told(&mut events).await;
    assert_eq!(end, TurnEnd::EndTurn);
    assert_eq!(last(&session).await.content(), "It is sunny.");
    assert_eq!(one.requests().len(), asked);
    assert_eq!(two.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_does_not_wait_for_the_next_try() {
    let folder = tempfile::tempdir().unwrap();
    let reply = busy(503).header("retry-after", "50");
    let one = MockProvider::with_replies([reply]);
    let engine = engine(&folder.path().join("s.db"), &one, &one, "");
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
    let ended = tokio::time::timeout(Duration::from_secs(10), told(&mut events)).await;
    assert_eq!(ended.unwrap().1, TurnEnd::Abort);
    assert_eq!(one.requests().len(), 1);
}
