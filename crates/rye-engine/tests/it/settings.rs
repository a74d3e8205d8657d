//! Settings of single sessions, and engines that serve several projects.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{EventKind, Session as SessionData, SessionId, SessionSettings};
use rye_engine::store::{Claim, SessionStore, StoreError};
use rye_engine::{BoxFuture, Builder, Engine, InvalidSession, NewSession, Prompt, Setup, Setups};
use rye_model::{Catalogue, Config, ConfigFile, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryStore, SqliteStore};
use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
use serde_json::{Map, json};

/// Two models without failover, and the built-in tools.
fn builder(one: &MockProvider, two: &MockProvider) -> Builder {
    let text = format!(
        "default: a/one\nretry: {{ max_attempts: 1, initial_delay_ms: 1 }}\nproviders:\n  \
         a: {{ api: openai-chat, base_url: '{}/v1', models: {{ one: {{}} }} }}\n  \
         b: {{ api: openai-chat, base_url: '{}/v1', models: {{ two: {{}} }} }}\n",
        one.url(),
        two.url(),
    );
    let path = "models.yaml".into();
    let config = Config::merge(&[ConfigFile { path, text }]).unwrap();
    Engine::builder()
        .models(Catalogue::new(".").with_config(config))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(rye_tools::tools())
}

fn settings() -> SessionSettings {
    SessionSettings {
        tools: Some(vec!["read".to_owned()]),
        failover: Some(vec!["b/two".to_owned()]),
        compaction: Map::from_iter([("auto".to_owned(), json!(false))]),
    }
}

async fn answer(engine: &Engine, session: &SessionId) -> String {
    let prompt = engine.submit(session, "hello").await.unwrap();
    let answer = engine.answer(session, &prompt);
    let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
    answer.unwrap().unwrap().text
}

#[tokio::test]
async fn session_keeps_its_own_tools_and_failover_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let one = MockProvider::new(|_, _| Reply::json(503, &Api::OpenAiChat.error_body(503, "busy")));
    let two = MockProvider::new(|_, _| {
        Reply::stream(Api::OpenAiChat.stream(&Completion::text("from two")))
    });
    let engine = |file: &Path| {
        let store = SqliteStore::open(file).unwrap();
        builder(&one, &two).store(store).build().unwrap()
    };
    let file = dir.path().join("sessions.db");
    let first = engine(&file);
    let new = NewSession {
        settings: settings(),
        ..NewSession::default()
    };
    first.check_new_session(&new).await.unwrap();
    let session = first.ensure_session(new).await.unwrap().id;
    assert_eq!(answer(&first, &session).await, "from two");
    first.shutdown().await.unwrap();
    drop(first);
    let second = engine(&file);
    assert_eq!(answer(&second, &session).await, "from two");
    for request in two.requests() {
        let tools = request.body["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1, "{tools:?}");
        assert_eq!(tools[0]["function"]["name"], "read");
    }
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn invalid_settings_of_a_session_are_refused() {
    let provider = MockProvider::with_replies([]);
    let engine = builder(&provider, &provider)
        .store(MemoryStore::new())
        .build()
        .unwrap();
    let check = async |settings: SessionSettings| {
        let new = NewSession {
            settings,
            ..NewSession::default()
        };
        engine.check_new_session(&new).await.unwrap_err()
    };
    let default = SessionSettings::default;
    let tools = Some(vec!["reed".to_owned()]);
    let error = check(SessionSettings { tools, ..default() }).await;
    assert!(matches!(error, InvalidSession::Tool { .. }), "{error}");
    let failover = Some(vec!["b/three".to_owned()]);
    let settings = SessionSettings {
        failover,
        ..default()
    };
    let error = check(settings).await;
    assert!(matches!(error, InvalidSession::Model(_)), "{error}");
    for (key, value) in [
        ("tail_share", json!(7)),
        ("tale", json!(1)),
        ("auto", json!(1)),
    ] {
        let compaction = Map::from_iter([(key.to_owned(), value)]);
        let error = check(SessionSettings {
            compaction,
            ..default()
        });
        let error = error.await;
        assert!(matches!(error, InvalidSession::Compaction(_)), "{error}");
    }
}

/// A setup for each project whose name is the text that its model answers.
struct ByProject;

impl Setups for ByProject {
    fn setup<'a>(
        &'a self,
        session: &'a SessionData,
    ) -> BoxFuture<'a, Result<Option<Arc<Setup>>, String>> {
        Box::pin(async move {
            let Some(project) = &session.project else {
                return Ok(None);
            };
            if project == "gone" {
                return Err("its project gone does not exist".to_owned());
            }
            Ok(Some(Arc::new(answering(project).setup().unwrap())))
        })
    }
}

fn answering(text: &str) -> Builder {
    let script: Script = format!("steps: [{{ text: {text} }}]").parse().unwrap();
    Engine::builder()
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(VirtualSandbox::new()))
}

#[tokio::test]
async fn engine_serves_several_projects_at_once() {
    let engine = answering("own").store(MemoryStore::new());
    let engine = engine.setups(Arc::new(ByProject)).build().unwrap();
    let create = async |project: Option<&str>| {
        let new = NewSession {
            project: project.map(str::to_owned),
            ..NewSession::default()
        };
        engine.ensure_session(new).await
    };
    for project in [None, Some("here"), Some("there")] {
        let session = create(project).await.unwrap().id;
        assert_eq!(answer(&engine, &session).await, project.unwrap_or("own"));
    }
    let refused = create(Some("gone")).await;
    assert!(matches!(refused, Err(StoreError::Setup(..))), "{refused:?}");
}

#[tokio::test]
async fn session_whose_project_is_gone_stays_readable() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let engine = answering("own").shared_store(Arc::clone(&store));
    let engine = engine.build().unwrap();
    let new = NewSession {
        project: Some("gone".to_owned()),
        ..NewSession::default()
    };
    let session = engine.ensure_session(new).await.unwrap().id;
    answer(&engine, &session).await;
    engine.shutdown().await.unwrap();
    let engine = answering("own")
        .shared_store(store)
        .setups(Arc::new(ByProject));
    let engine = engine.build().unwrap();
    let opened = engine.open_session(&session, Claim::IfFree).await;
    assert!(matches!(opened, Err(StoreError::Setup(..))));
    let sent = engine.submit(&session, Prompt::from("again")).await;
    assert!(matches!(sent, Err(StoreError::Setup(..))));
    assert_eq!(engine.holder(&session).await.unwrap(), None);
    let events = engine.events(&session, 0, 100).await.unwrap();
    let mut kinds = events.iter().map(|event| &event.kind);
    assert!(kinds.any(|kind| matches!(kind, EventKind::TurnEnd { .. })));
}
