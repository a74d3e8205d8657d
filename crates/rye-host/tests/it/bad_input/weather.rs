//! A disk, a store and a clock that are not what they should be.

use std::time::Duration;

use rye_engine::Prompt;
use rye_engine::protocol::{EventKind, QueueMode};
use rye_engine::store::{Claim, PostOutcome, SessionStore as _, StoreError};

use super::tools::Habit;
use super::world::{self, Clockwork, World, decision, gate_of, said, until_ended};

const HOUR: u64 = 3_600_000;

#[tokio::test]
async fn a_store_that_is_slow_and_fails_for_a_while_loses_and_repeats_nothing() {
    let script = "steps: [{ tool_calls: [{ name: gives }] }, { text: done }]";
    let world = World::new(script).with("gives", Habit::Gives(2));
    let session = world.session(&world.engine()).await;
    let prompt = session.prompt("go").await.unwrap();
    until_ended(&session, &prompt).await;
    let undisturbed = world.story().await;

    // Every call in turn fails, and the two behind it.
    for good in 0..20 {
        let world = World::new(script).with("gives", Habit::Gives(2));
        let session = world.session(&world.engine()).await;
        world.trouble.begin(1, good, 3);
        let mut prompt = session.prompt("go").await;
        for _ in 0..3 {
            if let Err(error) = &prompt {
                // Nothing was written: whoever asked may ask again.
                assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
                prompt = session.prompt("go").await;
            }
        }
        until_ended(&session, &prompt.unwrap()).await;
        if world.trouble.left() > 0 {
            return assert!(good > 4, "hardly anything failed");
        }
        assert_eq!(world.story().await, undisturbed, "after {good} calls");
    }
    panic!("a turn takes more calls than that");
}

#[tokio::test]
async fn while_nothing_can_be_written_whoever_asks_is_told_and_what_was_begun_waits() {
    let world =
        World::new("{ steps: [{ text: done, delay_ms: 200 }], after_last: { text: more } }");
    let engine = world.engine();
    let session = world.session(&engine).await;
    let mut events = engine.feed();
    let prompt = session.prompt("go").await.unwrap();
    // Before the model has answered.
    world.trouble.begin(0, 0, u32::MAX);
    let why = loop {
        let notice = events.next().await.unwrap().unwrap();
        if let EventKind::Error { error } = notice.event.kind {
            break error.message;
        }
    };
    assert!(why.contains("no disk, for a while"), "{why}");
    let refused =
        |error: StoreError| assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    refused(session.prompt("never sent").await.unwrap_err());
    refused(session.abort(None).await.unwrap_err());
    world.trouble.begin(0, 0, 0);
    until_ended(&session, &prompt).await;
    assert_eq!(said(&session).await, "done");
    let prompt = session.prompt("again").await.unwrap();
    until_ended(&session, &prompt).await;
    let story = world.story().await;
    assert_eq!(story.matches("user: ").count(), 2, "{story}");
    assert!(!story.contains("never sent"), "{story}");
}

#[test]
fn a_disk_that_fills_up_stops_the_work_and_loses_none_of_it() {
    let world = World::new(world::LONG);
    // No file may grow beyond this, as if the disk were full.
    let scene = "trap '' XFSZ && ulimit -f 1000";
    let output = world.in_a_scene(scene, "weather::fills_the_disk");
    assert!(output.contains("1 passed"), "{output}");
    let acknowledged = world.acknowledged();
    assert!(acknowledged > 0, "{output}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // There is room again.
    runtime.block_on(async {
        let engine = world.engine();
        let id = "s".parse().unwrap();
        let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
        let prompt = session.prompt("the last one").await.unwrap();
        until_ended(&session, &prompt).await;
        let story = world.story().await;
        let asked = story.matches("user: ").count();
        // The one that found no room may have been written and not acknowledged.
        let expected = acknowledged + 1..=acknowledged + 2;
        assert!(
            expected.contains(&asked),
            "{asked} of {acknowledged} and one"
        );
    });
}

/// Not a test by itself: what the disk is full for.
#[test]
fn fills_the_disk() {
    let Ok(folder) = std::env::var(world::FOLDER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::at(folder.as_ref(), world::LONG);
        let session = world.session(&world.engine()).await;
        for number in 0..100 {
            let prompt = Prompt::from(format!("{number} {}", "x".repeat(50_000)));
            let asked = session.prompt(prompt);
            let asked = match asked.await {
                Ok(asked) => asked,
                Err(StoreError::Unavailable(_)) => return,
                Err(error) => panic!("{error}"),
            };
            // The engine tries again and again: what was begun is not given up.
            let ended = until_ended(&session, &asked);
            if tokio::time::timeout(Duration::from_secs(5), ended)
                .await
                .is_err()
            {
                return;
            }
            world.acknowledge();
        }
        panic!("the disk was never full");
    });
}

#[tokio::test]
async fn a_clock_that_jumps_back_an_hour_stops_nothing() {
    let script = "
steps:
  - text: first
  - tool_calls: [{ name: asks }]
  - text: second
";
    let mut world = World::new(script).with("asks", Habit::Asks(Some(Duration::from_hours(2))));
    world.clock = Clockwork::at(10 * HOUR);
    let engine = world.engine();
    let session = world.session(&engine).await;
    let prompt = session.prompt("one").await.unwrap();
    until_ended(&session, &prompt).await;
    world.clock.set(9 * HOUR);
    let prompt = session.prompt("two").await.unwrap();
    let gate = gate_of(&session).await;
    assert_eq!(
        engine.decide(&gate, decision("approve")).await,
        Ok(PostOutcome::Written)
    );
    until_ended(&session, &prompt).await;
    assert_eq!(said(&session).await, "second");
    // The order is that of what happened, not of the clock.
    let events = world.store().events(session.id(), 0, 1000).await.unwrap();
    let numbers: Vec<_> = events.iter().filter_map(|event| event.sequence).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_being_collected_when_the_clock_jumped_back_does_not_wait_an_hour() {
    let mut world = World::new("steps: [{ text: all of you }]");
    world.clock = Clockwork::at(10 * HOUR);
    let engine = world.engine();
    let session = world.session(&engine).await;
    let prompt = Prompt {
        mode: Some(QueueMode::Collect),
        ..Prompt::from("one")
    };
    let prompt = session.prompt(prompt).await.unwrap();
    engine.shutdown().await.unwrap();
    world.clock.set(9 * HOUR);
    let engine = world.engine();
    let session = engine
        .open_session(session.id(), Claim::IfFree)
        .await
        .unwrap();
    world.clock.run();
    until_ended(&session, &prompt).await;
    assert_eq!(said(&session).await, "all of you");
}
