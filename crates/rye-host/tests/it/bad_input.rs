//! What must not happen, happens: a typed error, and a record that is as it was.

#![expect(clippy::expect_used, reason = "tests may panic")]

mod fatal;
mod store;
mod tools;
mod weather;
mod world;

use rye_engine::protocol::{ErrorCode, EventKind, GateStatus, QueueMode, ResultStatus};
use rye_engine::store::{Claim, PostOutcome, SessionStore as _, StoreError};
use rye_engine::{DecideError, NewSession, Prompt};

use tools::Habit;
use world::{World, decision, gate_of, results, said, until_ended};

fn mib(count: usize) -> usize {
    count << 20
}

#[tokio::test]
async fn names_of_nothing_are_told_and_leave_nothing_behind() {
    let world = World::new("steps: [{ text: hello }]");
    let engine = world.engine();
    let unknown = "nobody".parse().unwrap();
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
    let gate = "gate:nobody:t:i:k".to_owned().into();
    let decided = engine.decide(&gate, decision("approve")).await;
    assert_eq!(decided, Err(DecideError::GateNotFound(gate)));
    assert_eq!(world.store().snapshot(&unknown).await, Ok(None));

    let session = world.session(&engine).await;
    let before = world.everything().await;
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
    assert_eq!(world.everything().await, before);
}

/// The store is slow, so that each is still opening while the others come.
#[tokio::test]
async fn who_opens_a_session_at_the_same_time_gets_the_same_one() {
    let world = World::new("steps: [{ text: hello }]");
    world.trouble.begin(5, u32::MAX, 0);
    let engine = world.engine();
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
        // Had two of them opened it, the others would still have theirs.
        assert!(engine.session(all[0].id()).is_none());
        for session in all {
            assert!(session.prompt("hello").await.is_err());
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_how_things_stand_changes_nothing() {
    let script = "steps: [{ tool_calls: [{ name: asks }] }, { text: done }]";
    let world = World::new(script).with("asks", Habit::Asks(None));
    let engine = world.engine();
    let session = world.session(&engine).await;
    let prompt = session.prompt("go").await.unwrap();
    let gate = gate_of(&session).await;
    let before = world.everything().await;
    let wrong = engine.decide(&gate, decision("perhaps")).await;
    assert!(
        matches!(wrong, Err(DecideError::UnknownAction { .. })),
        "{wrong:?}"
    );
    assert_eq!(world.everything().await, before);

    assert_eq!(
        engine.decide(&gate, decision("approve")).await,
        Ok(PostOutcome::Written)
    );
    until_ended(&session, &prompt).await;
    let before = world.everything().await;
    assert_eq!(
        engine.decide(&gate, decision("approve")).await,
        Ok(PostOutcome::Duplicate)
    );
    let other = engine.decide(&gate, decision("deny")).await;
    assert!(matches!(other, Ok(PostOutcome::Conflict(first)) if first.action == "approve"));
    assert_eq!(world.everything().await, before);

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
    assert_eq!(world.everything().await, before);
}

#[tokio::test]
async fn an_answer_to_a_turn_that_was_superseded_is_gone_and_resumes_nothing() {
    let script = "steps: [{ tool_calls: [{ name: asks }] }, { text: all right }]";
    let world = World::new(script).with("asks", Habit::Asks(None));
    let engine = world.engine();
    let session = world.session(&engine).await;
    session.prompt("go").await.unwrap();
    let gate = gate_of(&session).await;
    let steer = Prompt {
        mode: Some(QueueMode::Steer),
        ..Prompt::from("never mind")
    };
    let prompt = session.prompt(steer).await.unwrap();
    until_ended(&session, &prompt).await;
    let before = world.everything().await;
    let late = engine.decide(&gate, decision("approve")).await.unwrap();
    let withdrawn = |reason: &str| reason == "steer";
    assert!(
        matches!(&late, PostOutcome::GateClosed(GateStatus::Withdrawn { reason, .. }) if withdrawn(reason)),
        "{late:?}"
    );
    assert_eq!(world.everything().await, before);
}

#[tokio::test]
async fn whatever_a_tool_does_the_model_is_told_and_goes_on() {
    let script = "
steps:
  - tool_calls: [{ name: panics }]
  - tool_calls: [{ name: never_returns }]
  - tool_calls: [{ name: no_such_tool }]
  - tool_calls: [{ name: panics, args: { word: 7, other: true } }]
  - text: 'I was told: ${last_tool_result}'
";
    let world = World::new(script)
        .with("panics", Habit::Panics)
        .with("never_returns", Habit::NeverReturns);
    let session = world.session(&world.engine()).await;
    let prompt = session.prompt("go").await.unwrap();
    until_ended(&session, &prompt).await;
    let results = results(&session).await;
    for (_, error) in &results {
        let ids = &error.as_ref().unwrap().ids;
        assert_eq!(ids.session.as_ref(), Some(session.id()));
        assert_eq!(ids.prompt.as_ref(), Some(&prompt));
        assert!(ids.thread.is_some() && ids.call.is_some());
    }
    let told: Vec<_> = results
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
    assert_eq!(told, expected);
    let last = said(&session).await;
    assert!(
        last.contains("I was told") && last.contains("/word"),
        "{last}"
    );
}

#[tokio::test]
async fn what_is_too_long_is_cut_in_the_middle_wherever_a_tool_puts_it() {
    let script = "
steps:
  - tool_calls: [{ name: gives }]
  - tool_calls: [{ name: gives_data }]
  - tool_calls: [{ name: fails_with }]
  - text: done
";
    let world = World::new(script)
        .with("gives", Habit::Gives(mib(8)))
        .with("gives_data", Habit::GivesData(mib(8)))
        .with("fails_with", Habit::FailsWith(mib(8)));
    let session = world.session(&world.engine()).await;
    let prompt = session.prompt("go").await.unwrap();
    until_ended(&session, &prompt).await;
    let record = world.everything().await;
    let bytes = record.len();
    assert!(bytes < mib(1), "{bytes} bytes were written down");
    // What a tool fails with stands in two places: for the model, and for programs.
    assert_eq!(record.matches("left out").count(), 4);
    assert_eq!(said(&session).await, "done");
}

#[test]
fn a_tool_that_gives_a_gibibyte_costs_that_and_not_much_more() {
    // In a process of its own, so that what others use up is not counted.
    let Ok(folder) = std::env::var(world::FOLDER) else {
        let name = "a_tool_that_gives_a_gibibyte_costs_that_and_not_much_more";
        let output = World::new("").in_a_scene("true", name);
        return assert!(output.contains("1 passed"), "{output}");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let script = "steps: [{ tool_calls: [{ name: gives }] }, { text: done }]";
        let world = World::at(folder.as_ref(), script).with("gives", Habit::Gives(mib(1024)));
        let session = world.session(&world.engine()).await;
        let before = world::memory("VmRSS:");
        let prompt = session.prompt("go").await.unwrap();
        until_ended(&session, &prompt).await;
        let (peak, after) = (world::memory("VmHWM:"), world::memory("VmRSS:"));
        assert!(world.everything().await.len() < mib(1));
        // It is made once by the tool, and never copied.
        assert!(peak < before + mib(1024 + 64), "{peak} bytes at the most");
        assert!(after < before + mib(64), "{after} bytes are kept of it");
    });
}

#[tokio::test]
async fn of_two_hosts_on_one_session_the_one_that_lost_it_writes_nothing() {
    let world = World::new("steps: [{ text: hello }, { text: again }]");
    let (one, two) = (world.engine(), world.engine());
    let session = world.session(&one).await;
    let prompt = session.prompt("first").await.unwrap();
    until_ended(&session, &prompt).await;
    let id = session.id().clone();
    let held = two.open_session(&id, Claim::IfFree).await;
    assert!(matches!(held.err(), Some(StoreError::InUse { .. })));
    let taken = two.open_session(&id, Claim::TakeOver).await.unwrap();
    let before = world.everything().await;
    let lost = session.prompt("second").await;
    assert_eq!(lost, Err(StoreError::Fenced(id.clone())));
    // And it stays so.
    assert_eq!(session.prompt("third").await, Err(StoreError::Fenced(id)));
    assert_eq!(world.everything().await, before);
    let prompt = taken.prompt("second").await.unwrap();
    until_ended(&taken, &prompt).await;
    assert_eq!(said(&taken).await, "again");
}

#[tokio::test]
async fn a_listener_that_sleeps_is_told_and_misses_nothing() {
    let script = "
steps: []
after_last: { text: 'a long answer, said in very small pieces', chunk_chars: 1, chunk_ms: 0 }
";
    let world = World::new(script);
    let session = world.session(&world.engine()).await;
    let mut sleeper = session.subscribe(0);
    let (mut heard, mut lagged) = (0, false);
    // Awake at first, and asleep for all that comes then.
    for prompts in [1, 60] {
        for _ in 0..prompts {
            let prompt = session.prompt("go").await.unwrap();
            until_ended(&session, &prompt).await;
        }
        let record = world.store().snapshot(session.id()).await.unwrap();
        let last = record.unwrap().sequence;
        while heard < last {
            let event = sleeper.next().await.unwrap().unwrap().event;
            lagged |= matches!(event.kind, EventKind::Lagged { .. });
            if let Some(number) = event.sequence {
                assert_eq!(number, heard + 1);
                heard = number;
            }
        }
    }
    assert!(lagged, "it was not told");
}
