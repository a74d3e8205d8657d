//! What people expect, story by story.

use super::*;

#[test]
fn a_prompt_is_answered_and_the_next_one_begins() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    world.prompt(QueueMode::Followup);
    world.say("one");
    assert!(world.model);
    world.say("two");
    assert_eq!(
        world.story(),
        [
            "user: prompt 1",
            "model: one",
            "user: prompt 2",
            "model: two"
        ]
    );
    assert!(world.record.thread.turn.is_none());
    assert!(
        world
            .record
            .prompts
            .values()
            .all(|prompt| prompt.status == PromptStatus::Done)
    );
}

#[test]
fn a_turn_with_a_tool_is_four_commits() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["pure"]).remove(0);
    world.end(&call, "42");
    world.say("it is 42");
    assert_eq!(
        world.story(),
        [
            "user: prompt 1",
            "model: →pure",
            "tool: 42",
            "model: it is 42"
        ]
    );
}

#[test]
fn tools_run_at_once_but_for_one_that_runs_alone() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let calls = world.want(&["pure", "once", "alone", "pure"]);
    assert_eq!(world.tools.len(), 2, "{:?}", world.tools);
    for call in &calls[..2] {
        assert!(!world.tools.contains_key(&calls[2]));
        world.end(call, "done");
    }
    // What was wanted after it begins after it.
    assert_eq!(world.tools.len(), 1, "{:?}", world.tools);
    world.end(&calls[2], "done");
    assert!(world.tools.contains_key(&calls[3]));
    world.end(&calls[3], "done");
    assert!(world.model);
}

#[test]
fn a_tool_that_is_not_there_is_told_to_the_model() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    world.want(&["nonsense"]);
    world.say("sorry");
    assert_eq!(world.story()[2], "tool: Error");
}

#[test]
fn a_gate_is_decided_while_its_host_lives() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    assert!(world.record.suspended.contains_key(&gate));
    assert!(world.replies.is_empty());
    world.decide(&gate, "approve");
    assert_eq!(world.replies.len(), 1);
    assert!(world.record.suspended.is_empty());
    assert_eq!(world.begun[&call], 1, "the tool goes on where it is");
    world.end(&call, "removed");
    world.say("done");
}

#[test]
fn a_gate_outlives_its_host_and_is_asked_once() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    world.die();
    assert!(
        world.tools.is_empty(),
        "nothing runs before somebody decides"
    );
    world.decide(&gate, "approve");
    assert_eq!(world.begun[&call], 2, "the tool runs again from its start");
    let same = world.ask(&call, "rm");
    assert_eq!(same, gate);
    assert_eq!(world.replies.len(), 1, "and finds the decision");
    assert_eq!(world.record.gates.len(), 1);
}

#[test]
fn a_gate_that_is_decided_while_no_host_is_there_is_found_decided() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    world.resolve(&gate, "approve");
    world.die();
    assert_eq!(world.begun[&call], 2);
    assert!(world.record.suspended.is_empty());
}

#[test]
fn a_gate_expires_by_the_clock_and_not_by_a_timer() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    world.now = world.now.after(Duration::from_secs(601));
    world.die();
    assert!(matches!(
        world.record.gates[&gate].status,
        GateStatus::Expired { .. }
    ));
    assert_eq!(
        world.begun[&call], 2,
        "the tool learns of it when it asks again"
    );
    world.ask(&call, "rm");
    assert!(matches!(world.replies[0].1, GateStatus::Expired { .. }));
}

#[test]
fn an_answer_to_a_superseded_turns_gate_resumes_nothing() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    world.prompt(QueueMode::Steer);
    assert!(matches!(
        world.record.gates[&gate].status,
        GateStatus::Withdrawn { .. }
    ));
    world.decide(&gate, "approve");
    assert!(world.tools.is_empty());
    world.say("all right");
    assert_eq!(
        world.story(),
        [
            "user: prompt 1",
            "model: →once",
            "gate: May it?",
            "tool: Aborted",
            "user: prompt 2",
            "model: all right",
        ]
    );
}

#[test]
fn steering_keeps_what_the_model_had_said() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    world.prompt(QueueMode::Followup);
    world.prompt(QueueMode::Steer);
    world.say("as you wish");
    assert_eq!(
        world.story(),
        [
            "user: prompt 1",
            "model: so far",
            "user: prompt 3",
            "model: as you wish",
            "user: prompt 2",
        ]
    );
}

#[test]
fn prompts_are_collected_with_who_asked() {
    let mut world = World::new();
    let author = |name: &str| {
        let (name, channel) = (name.to_owned(), Some("#ops".to_owned()));
        Some(rye_protocol::Author { name, channel })
    };
    let mut first = world.queued_prompt(QueueMode::Collect);
    first.author = author("ada");
    let mut second = world.queued_prompt(QueueMode::Collect);
    second.author = author("bob");
    let one = world.input(Input::Prompt(first));
    let two = world.input(Input::Prompt(second));
    assert_eq!(one, two);
    assert!(!world.model, "the window is open");
    world.die();
    assert!(!world.model, "for another host as well");
    world.now = world.now.after(Duration::from_secs(5));
    world.input(Input::Tick);
    assert_eq!(
        world.story(),
        ["user: [ada in #ops]\nprompt 1\n\n[bob in #ops]\nprompt 2"]
    );
}

#[test]
fn a_paused_thread_takes_prompts_and_begins_none() {
    let mut world = World::new();
    world.input(Input::Pause);
    world.prompt(QueueMode::Followup);
    world.die();
    assert!(!world.model, "a restart does not end a pause");
    world.input(Input::Resume);
    assert!(world.model);
}

#[test]
fn a_pause_lets_a_tool_end_and_then_stops() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["pure"]).remove(0);
    world.input(Input::Pause);
    world.end(&call, "42");
    assert!(!world.model);
    world.input(Input::Resume);
    assert!(world.model);
}

#[test]
fn abort_ends_what_runs_and_forgets_what_waits() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    let partial = String::new();
    world.input(Input::Abort {
        partial,
        clear_queue: true,
    });
    assert!(world.tools.is_empty() && !world.model);
    assert!(
        world
            .record
            .prompts
            .values()
            .all(|prompt| prompt.status == PromptStatus::Aborted)
    );
    assert!(matches!(
        world.record.gates[&gate].status,
        GateStatus::Withdrawn { .. }
    ));
    world.prompt(QueueMode::Followup);
    assert!(world.model, "and the thread goes on");
}

#[test]
fn a_call_of_the_model_is_counted_though_its_host_dies() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    assert_eq!(world.record.usage, Usage::default(), "it is only reserved");
    world.die();
    world.die();
    assert_eq!(world.record.usage.turns, 2, "two were made and lost");
    world.say("at last");
    assert_eq!(world.record.usage.turns, 3);
}

#[test]
fn what_a_task_used_up_counts_for_its_prompt() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["task"]).remove(0);
    world.end(&call, "done");
    let turn = world.record.thread.turn.as_ref().unwrap();
    assert_eq!(turn.usage.turns, 2, "its own, and that of the child");
    let child = crate::child::id(
        &world.record.thread.session,
        &world.record.thread.id,
        &turn.prompt,
        &call,
    );
    let events = &world.record.events;
    for told in [
        EventKind::TaskStart {
            session: child.clone(),
        },
        EventKind::TaskEnd { session: child },
    ] {
        assert!(events.contains(&told), "{told:?} was not told");
    }
}

#[test]
fn a_prompt_ends_at_its_own_limit_and_the_next_one_begins() {
    let mut world = World::new();
    let mut prompt = world.queued_prompt(QueueMode::Followup);
    prompt.limits.turns = Some(1);
    world.input(Input::Prompt(prompt));
    world.prompt(QueueMode::Followup);
    let call = world.want(&["pure"]).remove(0);
    world.end(&call, "42");
    assert_eq!(
        world.story(),
        [
            "user: prompt 1",
            "model: →pure",
            "tool: 42",
            "model: !Limit",
            "user: prompt 2"
        ]
    );
    assert!(world.model);
}

#[test]
fn when_the_time_is_up_calls_are_ended_and_gates_withdrawn() {
    let mut world = World::new();
    world.until = Some(world.now.after(Duration::from_mins(1)));
    world.prompt(QueueMode::Followup);
    let call = world.want(&["once"]).remove(0);
    let gate = world.ask(&call, "rm");
    world.now = world.now.after(Duration::from_mins(1));
    world.input(Input::Tick);
    assert!(world.tools.is_empty() && !world.model);
    assert_eq!(
        world.story(),
        [
            "user: prompt 1",
            "model: →once",
            "gate: May it?",
            "tool: Aborted",
            "model: !Limit"
        ]
    );
    assert!(matches!(
        world.record.gates[&gate].status,
        GateStatus::Withdrawn { .. }
    ));
}

#[test]
fn a_limit_that_lets_no_call_be_made_counts_none() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    world.input(Input::Limit("turns"));
    assert_eq!(world.record.usage, Usage::default());
    assert_eq!(world.story(), ["user: prompt 1", "model: !Limit"]);
}

#[test]
fn calls_without_end_are_ended() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    for _ in 0..super::super::drive::MOST_ROUNDS {
        let call = world.want(&["pure"]).remove(0);
        world.end(&call, "again");
    }
    assert!(!world.model, "it is asked once more");
    assert_eq!(world.story().last().unwrap(), "model: !Limit");
    world.prompt(QueueMode::Followup);
    world.say("and on");
    assert_eq!(world.story().last().unwrap(), "model: and on");
}

#[test]
fn calls_beyond_the_limit_of_an_answer_are_not_run_and_have_results() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let calls = world.want(&vec!["pure"; 10_000]);
    let started = |world: &World| {
        let starts = world.record.events.iter();
        starts
            .filter(|it| matches!(it, EventKind::ToolStart { .. }))
            .count()
    };
    assert_eq!(started(&world), 4, "as many as run at once");
    for (at, call) in calls.iter().take(5).enumerate() {
        assert!(!world.model, "{at} have ended");
        world.end(call, "done");
    }
    assert_eq!(started(&world), 5, "as many as an answer may have");
    assert!(world.model, "all calls have results");
    let results = world
        .story()
        .iter()
        .filter(|it| it.starts_with("tool:"))
        .count();
    assert!((6..1000).contains(&results), "{results}");
    let entries = world.record.entries.iter();
    let parts = entries.filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(&message.parts),
        _ => None,
    });
    let wanted = parts
        .flatten()
        .filter(|it| matches!(it, Part::ToolCall { .. }));
    assert_eq!(wanted.count(), results, "each call has a result");
    world.say("fewer, then");
    assert_eq!(world.story().last().unwrap(), "model: fewer, then");
}
