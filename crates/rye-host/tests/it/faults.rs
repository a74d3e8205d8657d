//! Invalid input and failing parts: the engine returns a typed error, and the session stays valid.

#![expect(clippy::expect_used, reason = "tests may panic")]

mod environment;
mod fatal;
mod store;
mod test_env;
mod tools;

pub(crate) use test_env::ManualClock;

use rye_engine::protocol::{ErrorCode, EventKind, GateStatus, QueueMode, ResultStatus};
use rye_engine::store::{Claim, PostOutcome, SessionStore as _, StoreError};
use rye_engine::{DecideError, NewSession, Prompt};

use test_env::{TestEnv, decision, first_gate, last_text, results, wait_for_turn_end};
use tools::Behaviour;

fn mib(count: usize) -> usize {
    count << 20
}

#[tokio::test]
async fn unknown_ids_are_errors_and_change_nothing() {
    let env = TestEnv::new("steps: [{ text: hello }]");
    let engine = env.engine();
    let unknown = "missing".parse().unwrap();
    let opened = engine.open_session(&unknown, Claim::IfFree).await;
    assert!(matches!(
        opened.err(),
        Some(StoreError::NotFound {
            kind: "session",
            ..
        })
    ));
    let read = engine.history(&unknown).await;
    assert!(matches!(
        read,
        Err(StoreError::NotFound {
            kind: "session",
            ..
        })
    ));
    let gate = "gate:missing:t:i:k".to_owned().into();
    let decided = engine.decide(&gate, decision("approve")).await;
    assert_eq!(decided, Err(DecideError::GateNotFound(gate)));
    assert_eq!(env.store().snapshot(&unknown).await, Ok(None));

    let session = env.session(&engine).await;
    let before = env.dump().await;
    for outcome in [
        session.abort(Some("no such thread")).await,
        session.pause(Some("no such thread")).await,
        session.resume(Some("no such thread")).await,
    ] {
        let expected = StoreError::NotFound {
            kind: "thread",
            id: "no such thread".to_owned(),
        };
        assert_eq!(outcome, Err(expected));
    }
    assert_eq!(env.dump().await, before);
}

/// With a slow store, so that the calls overlap.
#[tokio::test]
async fn concurrent_opens_return_the_same_session() {
    let env = TestEnv::new("steps: [{ text: hello }]");
    env.faults.begin(5, u32::MAX, 0);
    let engine = env.engine();
    for _ in 0..3 {
        let openings = (0..8).map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let new = NewSession {
                    id: Some("s".parse().unwrap()),
                    ..NewSession::default()
                };
                engine.create_session(new).await
            })
        });
        let mut all = Vec::new();
        for opening in openings.collect::<Vec<_>>() {
            all.push(opening.await.unwrap().unwrap());
        }
        all[0].close().await.unwrap();
        // Otherwise the other handles would still be open.
        assert!(engine.session(all[0].id()).is_none());
        for session in all {
            assert!(session.prompt("hello").await.is_err());
        }
    }
}

#[tokio::test]
async fn invalid_operations_change_nothing() {
    let script = "steps: [{ tool_calls: [{ name: asks }] }, { text: done }]";
    let env = TestEnv::new(script).with("asks", Behaviour::Asks(None));
    let engine = env.engine();
    let session = env.session(&engine).await;
    let prompt = session.prompt("go").await.unwrap();
    let gate = first_gate(&session).await;
    let before = env.dump().await;
    let wrong = engine.decide(&gate, decision("perhaps")).await;
    assert!(
        matches!(wrong, Err(DecideError::UnknownAction { .. })),
        "{wrong:?}"
    );
    assert_eq!(env.dump().await, before);

    assert_eq!(
        engine.decide(&gate, decision("approve")).await,
        Ok(PostOutcome::Written)
    );
    wait_for_turn_end(&session, &prompt).await;
    let before = env.dump().await;
    assert_eq!(
        engine.decide(&gate, decision("approve")).await,
        Ok(PostOutcome::Duplicate)
    );
    let other = engine.decide(&gate, decision("deny")).await;
    assert!(matches!(other, Ok(PostOutcome::Conflict(first)) if first.action == "approve"));
    assert_eq!(env.dump().await, before);

    session.close().await.unwrap();
    let closed = session.prompt("more").await;
    assert!(
        matches!(
            closed,
            Err(StoreError::NotFound {
                kind: "open session",
                ..
            })
        ),
        "{closed:?}"
    );
    assert_eq!(env.dump().await, before);
}

#[tokio::test]
async fn decision_for_a_steered_turn_is_rejected() {
    let script = "steps: [{ tool_calls: [{ name: asks }] }, { text: all right }]";
    let env = TestEnv::new(script).with("asks", Behaviour::Asks(None));
    let engine = env.engine();
    let session = env.session(&engine).await;
    session.prompt("go").await.unwrap();
    let gate = first_gate(&session).await;
    let steer = Prompt {
        mode: Some(QueueMode::Steer),
        ..Prompt::from("never mind")
    };
    let prompt = session.prompt(steer).await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    let before = env.dump().await;
    let late = engine.decide(&gate, decision("approve")).await.unwrap();
    let withdrawn = |reason: &str| reason == "steer";
    assert!(
        matches!(&late, PostOutcome::GateClosed(GateStatus::Withdrawn { reason, .. }) if withdrawn(reason)),
        "{late:?}"
    );
    assert_eq!(env.dump().await, before);
}

#[tokio::test]
async fn tool_failures_are_reported_to_the_model() {
    let script = "
steps:
  - tool_calls: [{ name: panics }]
  - tool_calls: [{ name: never_returns }]
  - tool_calls: [{ name: no_such_tool }]
  - tool_calls: [{ name: panics, args: { word: 7, other: true } }]
  - text: 'The tool returned: ${last_tool_result}'
";
    let env = TestEnv::new(script)
        .with("panics", Behaviour::Panics)
        .with("never_returns", Behaviour::NeverReturns);
    let session = env.session(&env.engine()).await;
    let prompt = session.prompt("go").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    let results = results(&session).await;
    for (_, error) in &results {
        let ids = &error.as_ref().unwrap().ids;
        assert_eq!(ids.session.as_ref(), Some(session.id()));
        assert_eq!(ids.prompt.as_ref(), Some(&prompt));
        assert!(ids.thread.is_some() && ids.call.is_some());
    }
    let outcomes: Vec<_> = results
        .into_iter()
        .map(|(status, error)| (status, error.map(|error| error.code)))
        .collect();
    let error = |code| (ResultStatus::Error, Some(code));
    let expected = [
        error(ErrorCode::ToolPanicked),
        error(ErrorCode::Timeout),
        error(ErrorCode::UnknownTool),
        error(ErrorCode::InvalidArguments),
    ];
    assert_eq!(outcomes, expected);
    let last = last_text(&session).await;
    assert!(
        last.contains("The tool returned") && last.contains("/word"),
        "{last}"
    );
}

#[tokio::test]
async fn long_output_is_truncated_in_every_field() {
    let script = "
steps:
  - tool_calls: [{ name: gives }]
  - tool_calls: [{ name: gives_data }]
  - tool_calls: [{ name: fails_with }]
  - text: done
";
    let env = TestEnv::new(script)
        .with("gives", Behaviour::Gives(mib(8)))
        .with("gives_data", Behaviour::GivesData(mib(8)))
        .with("fails_with", Behaviour::FailsWith(mib(8)));
    let session = env.session(&env.engine()).await;
    let prompt = session.prompt("go").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    let record = env.dump().await;
    let bytes = record.len();
    assert!(bytes < mib(1), "{bytes} bytes were written down");
    // An error is stored twice: for the model, and for programs.
    assert_eq!(record.matches("bytes omitted").count(), 4);
    assert_eq!(last_text(&session).await, "done");
}

#[test]
fn memory_use_of_a_huge_result_is_limited() {
    // In a separate process, to measure its memory.
    let Ok(dir) = std::env::var(test_env::DIR) else {
        let name = "memory_use_of_a_huge_result_is_limited";
        let output = TestEnv::new("").run_child("true", name);
        return assert!(output.contains("1 passed"), "{output}");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let script = "steps: [{ tool_calls: [{ name: gives }] }, { text: done }]";
        let env = TestEnv::at(dir.as_ref(), script).with("gives", Behaviour::Gives(mib(1024)));
        let session = env.session(&env.engine()).await;
        let before = test_env::memory("VmRSS:");
        let prompt = session.prompt("go").await.unwrap();
        wait_for_turn_end(&session, &prompt).await;
        let (peak, after) = (test_env::memory("VmHWM:"), test_env::memory("VmRSS:"));
        assert!(env.dump().await.len() < mib(1));
        // The tool creates the output once, and the engine does not copy it.
        assert!(peak < before + mib(1024 + 64), "{peak} bytes at the most");
        assert!(after < before + mib(64), "{after} bytes are kept of it");
    });
}

#[tokio::test]
async fn fenced_host_cannot_write() {
    let env = TestEnv::new("steps: [{ text: hello }, { text: again }]");
    let (one, two) = (env.engine(), env.engine());
    let session = env.session(&one).await;
    let prompt = session.prompt("first").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    let id = session.id().clone();
    let held = two.open_session(&id, Claim::IfFree).await;
    assert!(matches!(held.err(), Some(StoreError::InUse { .. })));
    let taken = two.open_session(&id, Claim::TakeOver).await.unwrap();
    let before = env.dump().await;
    let lost = session.prompt("second").await;
    assert_eq!(lost, Err(StoreError::Fenced(id.clone())));
    // Also later.
    assert_eq!(session.prompt("third").await, Err(StoreError::Fenced(id)));
    assert_eq!(env.dump().await, before);
    let prompt = taken.prompt("second").await.unwrap();
    wait_for_turn_end(&taken, &prompt).await;
    assert_eq!(last_text(&taken).await, "again");
}

#[tokio::test]
async fn slow_subscriber_gets_a_lag_event_and_misses_nothing() {
    let script = "
steps: []
after_last: { text: 'a long answer, said in very small pieces', chunk_chars: 1, chunk_ms: 0 }
";
    let env = TestEnv::new(script);
    let session = env.session(&env.engine()).await;
    let mut sleeper = session.subscribe(0);
    let (mut last_number, mut lagged) = (0, false);
    // Reads one event, then waits.
    for prompts in [1, 60] {
        for _ in 0..prompts {
            let prompt = session.prompt("go").await.unwrap();
            wait_for_turn_end(&session, &prompt).await;
        }
        let record = env.store().snapshot(session.id()).await.unwrap();
        let last = record.unwrap().sequence;
        while last_number < last {
            let event = sleeper.next().await.unwrap().unwrap().event;
            lagged |= matches!(event.kind, EventKind::Lagged { .. });
            if let Some(number) = event.sequence {
                assert_eq!(number, last_number + 1);
                last_number = number;
            }
        }
    }
    assert!(lagged, "the subscriber did not lag");
}
