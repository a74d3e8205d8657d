//! Gates for reached limits, and stored increases.

use std::path::Path;
use std::sync::Arc;

use rye_engine::protocol::{EventKind, Gate, Limits, TurnEnd};
use rye_engine::store::Claim;
use rye_engine::{Answer, Decision, Engine, NewSession, Prompt, Session};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::{Value, json};

const SCRIPT: &str = "
steps:
  - tool_calls: [{ name: read, args: { path: a } }]
  - tool_calls: [{ name: read, args: { path: b } }]
  - text: done
after_last: { text: more }
";

fn engine(dir: &Path) -> Engine {
    Engine::builder()
        .store(SqliteStore::open(dir.join("sessions.db")).unwrap())
        .models(Catalogue::new(".").with("scripted:test", SCRIPT.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(rye_tools::tools())
        .prompt_on_limit(true)
        .build()
        .unwrap()
}

fn turns(turns: u64) -> Limits {
    Limits {
        turns: Some(turns),
        ..Limits::default()
    }
}

async fn session(engine: &Engine, limits: Limits) -> Session {
    let new = NewSession {
        limits,
        ..NewSession::default()
    };
    engine.create_session(new).await.unwrap()
}

/// Runs a prompt and decides each gate.
async fn run_prompt(
    engine: &Engine,
    session: &Session,
    limits: Limits,
    decide: impl Fn(&Gate) -> (&'static str, Value),
) -> Answer {
    let mut feed = engine.feed();
    let prompt = Prompt {
        limits,
        ..Prompt::from("go")
    };
    let prompt = session.prompt(prompt).await.unwrap();
    let gates = async {
        while let Ok(Some(notice)) = feed.next().await {
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                let (action, value) = decide(&gate);
                let decision = Decision {
                    value,
                    ..Decision::new(action, "ada", "test")
                };
                engine.decide(&gate.id, decision).await.unwrap();
            }
        }
    };
    tokio::select! {
        answer = session.wait_for_answer(&prompt) => answer.unwrap(),
        () = gates => unreachable!("the engine is gone"),
    }
}

#[tokio::test]
async fn increase_for_a_session_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let session = session(&engine, turns(2)).await;
    let answer = run_prompt(&engine, &session, Limits::default(), |gate| {
        assert_eq!(
            gate.title,
            "limit of 2 turns reached: increase it for this session?"
        );
        assert_eq!(gate.actions[0].label, "Allow 4 turns");
        ("approve", Value::Null)
    })
    .await;
    assert_eq!(
        (answer.reason, answer.text.as_str()),
        (TurnEnd::EndTurn, "done")
    );
    let id = session.id().clone();
    engine.shutdown().await.unwrap();
    let engine = self::engine(dir.path());
    let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
    let again = run_prompt(&engine, &session, Limits::default(), |gate| {
        unreachable!("{}", gate.title)
    })
    .await;
    assert_eq!(again.text, "more");
    // The next call exceeds the new limit.
    let denied = run_prompt(&engine, &session, Limits::default(), |gate| {
        assert!(gate.title.contains("limit of 4 turns"), "{}", gate.title);
        ("deny", Value::Null)
    })
    .await;
    assert_eq!(denied.reason, TurnEnd::Limit);
    assert_eq!(denied.error.as_deref(), Some("limit reached: turns"));
}

#[tokio::test]
async fn limit_of_a_prompt_can_be_raised_to_an_entered_value() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let session = session(&engine, Limits::default()).await;
    let asked = std::cell::Cell::new(0);
    let answer = run_prompt(&engine, &session, turns(1), |gate| {
        asked.set(asked.get() + 1);
        assert_eq!(gate.context["scope"], "prompt");
        ("approve", json!("3"))
    })
    .await;
    assert_eq!((answer.reason, asked.get()), (TurnEnd::EndTurn, 1));
}

#[tokio::test]
async fn increase_that_is_too_small_ends_the_turn() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let session = session(&engine, Limits::default()).await;
    let answer = run_prompt(&engine, &session, turns(1), |_| ("approve", json!(1))).await;
    assert_eq!(answer.reason, TurnEnd::Limit);
}

#[tokio::test]
async fn token_increase_covers_the_next_call() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let limits = Limits {
        tokens: Some(1),
        ..Limits::default()
    };
    let session = session(&engine, limits).await;
    let answer = run_prompt(&engine, &session, Limits::default(), |_| {
        ("approve", Value::Null)
    })
    .await;
    assert_eq!(answer.reason, TurnEnd::EndTurn, "{:?}", answer.error);
}
