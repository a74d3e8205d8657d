//! Gates for reached limits, and stored increases.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rye_engine::clock::Clock;
use rye_engine::protocol::{EventKind, Gate, Limits, Millis, TurnEnd};
use rye_engine::store::Claim;
use rye_engine::{Answer, Decision, Engine, NewSession, Prompt, Session};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryStore, SqliteStore};
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
    assert_eq!(denied.error.unwrap().message, "limit reached: turns");
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

/// A clock that only the test moves.
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn time_limit_ends_the_turn_without_asking_and_keeps_the_partial_answer() {
    let now = Arc::new(AtomicU64::new(1_000));
    let script = "steps: [{ text: 'one two three', chunk_chars: 4, chunk_ms: 3600000 }]";
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", script.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .clock(TestClock(Arc::clone(&now)))
        .prompt_on_limit(true)
        .build()
        .unwrap();
    let session = session(&engine, Limits::default()).await;
    let mut events = session.subscribe(0);
    let prompt = Prompt {
        limits: Limits {
            until: Some(Millis(2_000_000)),
            // A reached limit that waits for the end of the call doesn't hide the time limit.
            turns: Some(1),
            ..Limits::default()
        },
        ..Prompt::from("go")
    };
    let prompt = session.prompt(prompt).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap().event;
        if matches!(event.kind, EventKind::TextDelta { .. }) {
            break;
        }
    }
    now.store(3_000_000, Ordering::Relaxed);
    // The engine checks the deadline at the next input.
    session.resume(Some("default")).await.unwrap();
    let answer = session.wait_for_answer(&prompt).await.unwrap();
    assert_eq!(
        (answer.reason, answer.text.as_str()),
        (TurnEnd::Limit, "one ")
    );
    assert!(engine.pending_gates(None).await.unwrap().is_empty());
}
