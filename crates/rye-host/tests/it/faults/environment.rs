//! Faults of the environment: full disks, failing stores and clocks that jump.

use std::time::Duration;

use rye_engine::Prompt;
use rye_engine::protocol::{EventKind, QueueMode};
use rye_engine::store::{Claim, PostOutcome, SessionStore as _, StoreError};

use super::test_env::{
    self, ManualClock, TestEnv, decision, first_gate, last_text, wait_for_turn_end,
};
use super::tools::Behaviour;

const HOUR: u64 = 3_600_000;

#[tokio::test]
async fn temporary_store_failures_lose_and_repeat_nothing() {
    let script = "steps: [{ tool_calls: [{ name: gives }] }, { text: done }]";
    let env = TestEnv::new(script).with("gives", Behaviour::Gives(2));
    let session = env.session(&env.engine()).await;
    let prompt = session.prompt("go").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    let undisturbed = env.transcript().await;

    // In each round, another call and the two after it fail.
    for good in 0..20 {
        let env = TestEnv::new(script).with("gives", Behaviour::Gives(2));
        let session = env.session(&env.engine()).await;
        env.faults.begin(1, good, 3);
        let mut prompt = session.prompt("go").await;
        for _ in 0..3 {
            if let Err(error) = &prompt {
                // Nothing was written, so the prompt can be sent again.
                assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
                prompt = session.prompt("go").await;
            }
        }
        wait_for_turn_end(&session, &prompt.unwrap()).await;
        if env.faults.remaining() > 0 {
            return assert!(good > 4, "hardly anything failed");
        }
        assert_eq!(env.transcript().await, undisturbed, "after {good} calls");
    }
    panic!("a turn takes more calls than that");
}

#[tokio::test]
async fn prompts_fail_and_turns_wait_while_the_store_is_unavailable() {
    let env =
        TestEnv::new("{ steps: [{ text: done, delay_ms: 200 }], after_last: { text: more } }");
    let engine = env.engine();
    let session = env.session(&engine).await;
    let mut events = engine.feed();
    let prompt = session.prompt("go").await.unwrap();
    // While the model is called.
    env.faults.begin(0, 0, u32::MAX);
    let error = loop {
        let notice = events.next().await.unwrap().unwrap();
        if let EventKind::Error { error } = notice.event.kind {
            break error.message;
        }
    };
    assert!(error.contains("no disk, for a while"), "{error}");
    let refused =
        |error: StoreError| assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    refused(session.prompt("never sent").await.unwrap_err());
    refused(session.abort(None).await.unwrap_err());
    env.faults.begin(0, 0, 0);
    wait_for_turn_end(&session, &prompt).await;
    assert_eq!(last_text(&session).await, "done");
    let prompt = session.prompt("again").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    let story = env.transcript().await;
    assert_eq!(story.matches("user: ").count(), 2, "{story}");
    assert!(!story.contains("never sent"), "{story}");
}

#[test]
fn full_disk_pauses_the_work_and_loses_nothing() {
    let env = TestEnv::new(test_env::ENDLESS);
    // Limits the size of files to simulate a full disk.
    let setup = "trap '' XFSZ && ulimit -f 1000";
    let output = env.run_child(setup, "environment::child_fills_the_disk");
    assert!(output.contains("1 passed"), "{output}");
    let acknowledged = env.acknowledged();
    assert!(acknowledged > 0, "{output}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // Without the limit.
    runtime.block_on(async {
        let engine = env.engine();
        let id = "s".parse().unwrap();
        let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
        let prompt = session.prompt("the last one").await.unwrap();
        wait_for_turn_end(&session, &prompt).await;
        let story = env.transcript().await;
        let asked = story.matches("user: ").count();
        // The last prompt may be stored although it was not acknowledged.
        let expected = acknowledged + 1..=acknowledged + 2;
        assert!(
            expected.contains(&asked),
            "{asked} of {acknowledged} and one"
        );
    });
}

/// Child process of `full_disk_pauses_the_work_and_loses_nothing`.
#[test]
fn child_fills_the_disk() {
    let Ok(dir) = std::env::var(test_env::DIR) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let env = TestEnv::at(dir.as_ref(), test_env::ENDLESS);
        let session = env.session(&env.engine()).await;
        for number in 0..100 {
            let prompt = Prompt::from(format!("{number} {}", "x".repeat(50_000)));
            let asked = session.prompt(prompt);
            let asked = match asked.await {
                Ok(asked) => asked,
                Err(StoreError::Unavailable(_)) => return,
                Err(error) => panic!("{error}"),
            };
            // The engine retries, because the turn has started.
            let ended = wait_for_turn_end(&session, &asked);
            if tokio::time::timeout(Duration::from_secs(5), ended)
                .await
                .is_err()
            {
                return;
            }
            env.acknowledge();
        }
        panic!("the disk was never full");
    });
}

#[tokio::test]
async fn clock_that_jumps_back_does_not_stop_the_session() {
    let script = "
steps:
  - text: first
  - tool_calls: [{ name: asks }]
  - text: second
";
    let mut env = TestEnv::new(script).with("asks", Behaviour::Asks(Some(Duration::from_hours(2))));
    env.clock = ManualClock::at(10 * HOUR);
    let engine = env.engine();
    let session = env.session(&engine).await;
    let prompt = session.prompt("one").await.unwrap();
    wait_for_turn_end(&session, &prompt).await;
    env.clock.set(9 * HOUR);
    let prompt = session.prompt("two").await.unwrap();
    let gate = first_gate(&session).await;
    assert_eq!(
        engine.decide(&gate, decision("approve")).await,
        Ok(PostOutcome::Written)
    );
    wait_for_turn_end(&session, &prompt).await;
    assert_eq!(last_text(&session).await, "second");
    // Events are in the order of writing, not of their times.
    let events = env.store().events(session.id(), 0, 1000).await.unwrap();
    let numbers: Vec<_> = events.iter().filter_map(|event| event.sequence).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn collection_window_ends_after_the_clock_jumped_back() {
    let mut env = TestEnv::new("steps: [{ text: all of you }]");
    env.clock = ManualClock::at(10 * HOUR);
    let engine = env.engine();
    let session = env.session(&engine).await;
    let prompt = Prompt {
        mode: Some(QueueMode::Collect),
        ..Prompt::from("one")
    };
    let prompt = session.prompt(prompt).await.unwrap();
    engine.shutdown().await.unwrap();
    env.clock.set(9 * HOUR);
    let engine = env.engine();
    let session = engine
        .open_session(session.id(), Claim::IfFree)
        .await
        .unwrap();
    env.clock.run();
    wait_for_turn_end(&session, &prompt).await;
    assert_eq!(last_text(&session).await, "all of you");
}
