//! Scenarios of one thread.

use super::*;

#[test]
fn prompts_run_one_after_another() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    harness.prompt(QueueMode::Followup);
    harness.answer_text("one");
    assert!(harness.model);
    harness.answer_text("two");
    assert_eq!(
        harness.history(),
        [
            "user: prompt 1",
            "model: one",
            "user: prompt 2",
            "model: two"
        ]
    );
    assert!(harness.stored.thread.turn.is_none());
    assert!(
        harness
            .stored
            .prompts
            .values()
            .all(|prompt| prompt.status == PromptStatus::Done)
    );
}

#[test]
fn tool_result_goes_back_to_the_model() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["pure"]).remove(0);
    harness.end_tool(&call, "42");
    harness.answer_text("it is 42");
    assert_eq!(
        harness.history(),
        [
            "user: prompt 1",
            "model: →pure",
            "tool: 42",
            "model: it is 42"
        ]
    );
}

#[test]
fn tools_run_concurrently_except_exclusive_ones() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let calls = harness.request_tools(&["pure", "once", "alone", "pure"]);
    assert_eq!(harness.tools.len(), 2, "{:?}", harness.tools);
    for call in &calls[..2] {
        assert!(!harness.tools.contains_key(&calls[2]));
        harness.end_tool(call, "done");
    }
    // The call after the exclusive one starts after it.
    assert_eq!(harness.tools.len(), 1, "{:?}", harness.tools);
    harness.end_tool(&calls[2], "done");
    assert!(harness.tools.contains_key(&calls[3]));
    harness.end_tool(&calls[3], "done");
    assert!(harness.model);
}

#[test]
fn unknown_tool_is_reported_to_the_model() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    harness.request_tools(&["nonsense"]);
    harness.answer_text("sorry");
    assert_eq!(harness.history()[2], "tool: Error");
}

#[test]
fn decision_resumes_the_waiting_tool() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    assert!(harness.stored.gates[&gate].status.is_pending());
    assert!(harness.replies.is_empty());
    harness.decide(&gate, "approve");
    assert_eq!(harness.replies.len(), 1);
    assert_eq!(harness.started[&call], 1, "the tool continues");
    harness.end_tool(&call, "removed");
    harness.answer_text("done");
}

#[test]
fn gate_survives_a_restart_and_is_asked_once() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    harness.restart();
    assert!(harness.tools.is_empty(), "nothing runs before the decision");
    harness.decide(&gate, "approve");
    assert_eq!(harness.started[&call], 2, "the tool runs again");
    let same = harness.request_decision(&call, "rm");
    assert_eq!(same, gate);
    assert_eq!(harness.replies.len(), 1, "and finds the decision");
    assert_eq!(harness.stored.gates.len(), 1);
}

#[test]
fn gate_decided_while_no_host_runs_is_found_decided() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    harness.resolve(&gate, "approve");
    harness.restart();
    assert_eq!(harness.started[&call], 2);
}

#[test]
fn gate_expires_by_the_clock() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    harness.now = harness.now.after(Duration::from_secs(601));
    harness.restart();
    assert!(matches!(
        harness.stored.gates[&gate].status,
        GateStatus::Expired { .. }
    ));
    assert_eq!(
        harness.started[&call], 2,
        "the tool sees the expiry when it asks again"
    );
    harness.request_decision(&call, "rm");
    assert!(matches!(harness.replies[0].1, GateStatus::Expired { .. }));
}

#[test]
fn decision_for_a_superseded_turn_resumes_nothing() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    harness.prompt(QueueMode::Steer);
    assert!(matches!(
        harness.stored.gates[&gate].status,
        GateStatus::Withdrawn { .. }
    ));
    harness.decide(&gate, "approve");
    assert!(harness.tools.is_empty());
    harness.answer_text("all right");
    assert_eq!(
        harness.history(),
        [
            "user: prompt 1",
            "model: →once",
            "gate: Approve?",
            "tool: Aborted",
            "user: prompt 2",
            "model: all right",
        ]
    );
}

#[test]
fn steering_keeps_streamed_text() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    harness.prompt(QueueMode::Followup);
    harness.prompt(QueueMode::Steer);
    harness.answer_text("as you wish");
    assert_eq!(
        harness.history(),
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
fn collected_prompts_name_their_authors() {
    let mut harness = Harness::new();
    let author = |name: &str| {
        let (name, channel) = (name.to_owned(), Some("#ops".to_owned()));
        Some(rye_protocol::Author { name, channel })
    };
    let mut first = harness.queued_prompt(QueueMode::Collect);
    first.author = author("ada");
    let mut second = harness.queued_prompt(QueueMode::Collect);
    second.author = author("bob");
    let one = harness.input(Input::Prompt(first));
    let two = harness.input(Input::Prompt(second));
    assert_eq!(one, two);
    assert!(!harness.model, "the collect window is open");
    harness.restart();
    assert!(!harness.model, "also after a restart");
    harness.now = harness.now.after(Duration::from_secs(5));
    harness.input(Input::Tick);
    assert_eq!(
        harness.history(),
        ["user: [ada in #ops]\nprompt 1\n\n[bob in #ops]\nprompt 2"]
    );
}

#[test]
fn paused_thread_accepts_prompts_but_starts_none() {
    let mut harness = Harness::new();
    harness.input(Input::Pause);
    harness.prompt(QueueMode::Followup);
    harness.restart();
    assert!(!harness.model, "still paused after a restart");
    harness.input(Input::Resume);
    assert!(harness.model);
}

#[test]
fn pause_takes_effect_after_the_running_tool() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["pure"]).remove(0);
    harness.input(Input::Pause);
    harness.end_tool(&call, "42");
    assert!(!harness.model);
    harness.input(Input::Resume);
    assert!(harness.model);
}

#[test]
fn abort_ends_the_turn_and_clears_the_queue() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    let partial = String::new();
    harness.input(Input::Abort {
        partial,
        clear_queue: true,
    });
    assert!(harness.tools.is_empty() && !harness.model);
    assert!(
        harness
            .stored
            .prompts
            .values()
            .all(|prompt| prompt.status == PromptStatus::Aborted)
    );
    assert!(matches!(
        harness.stored.gates[&gate].status,
        GateStatus::Withdrawn { .. }
    ));
    harness.prompt(QueueMode::Followup);
    assert!(harness.model, "the thread still works");
}

#[test]
fn model_call_of_a_dead_host_is_counted() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    assert_eq!(harness.stored.usage, Usage::default(), "only reserved");
    harness.restart();
    harness.restart();
    assert_eq!(harness.stored.usage.turns, 2, "two calls were lost");
    harness.answer_text("at last");
    assert_eq!(harness.stored.usage.turns, 3);
}

#[test]
fn usage_of_a_task_counts_for_its_prompt() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["task"]).remove(0);
    harness.end_tool(&call, "done");
    let turn = harness.stored.thread.turn.as_ref().unwrap();
    assert_eq!(turn.usage.turns, 2, "its own and the child's");
    let child = crate::child::id(
        &harness.stored.thread.session,
        &harness.stored.thread.id,
        &turn.prompt,
        &call,
    );
    let events = &harness.stored.events;
    for event in [
        EventKind::TaskStart {
            session: child.clone(),
        },
        EventKind::TaskEnd { session: child },
    ] {
        assert!(events.contains(&event), "{event:?} is missing");
    }
}

#[test]
fn prompt_limit_ends_the_turn_and_the_next_prompt_starts() {
    let mut harness = Harness::new();
    let mut prompt = harness.queued_prompt(QueueMode::Followup);
    prompt.limits.turns = Some(1);
    harness.input(Input::Prompt(prompt));
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["pure"]).remove(0);
    harness.end_tool(&call, "42");
    assert_eq!(
        harness.history(),
        [
            "user: prompt 1",
            "model: →pure",
            "tool: 42",
            "model: !Limit",
            "user: prompt 2"
        ]
    );
    assert!(harness.model);
}

#[test]
fn session_deadline_ends_calls_and_withdraws_gates() {
    let mut harness = Harness::new();
    harness.until = Some(harness.now.after(Duration::from_mins(1)));
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["once"]).remove(0);
    let gate = harness.request_decision(&call, "rm");
    harness.now = harness.now.after(Duration::from_mins(1));
    harness.input(Input::Tick);
    assert!(harness.tools.is_empty() && !harness.model);
    assert_eq!(
        harness.history(),
        [
            "user: prompt 1",
            "model: →once",
            "gate: Approve?",
            "tool: Aborted",
            "model: !Limit"
        ]
    );
    assert!(matches!(
        harness.stored.gates[&gate].status,
        GateStatus::Withdrawn { .. }
    ));
}

#[test]
fn call_refused_by_a_limit_is_not_counted() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    harness.input(Input::LimitReached(LimitKind::Turns));
    assert_eq!(harness.stored.usage, Usage::default());
    assert_eq!(harness.history(), ["user: prompt 1", "model: !Limit"]);
}

#[test]
fn endless_tool_calls_reach_the_round_limit() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    for _ in 0..super::super::advance::MAX_ROUNDS {
        let call = harness.request_tools(&["pure"]).remove(0);
        harness.end_tool(&call, "again");
    }
    assert!(!harness.model, "no further model call");
    assert_eq!(harness.history().last().unwrap(), "model: !Limit");
    harness.prompt(QueueMode::Followup);
    harness.answer_text("and on");
    assert_eq!(harness.history().last().unwrap(), "model: and on");
}

#[test]
fn calls_beyond_the_limit_get_error_results() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let calls = harness.request_tools(&vec!["pure"; 10_000]);
    let started = |harness: &Harness| {
        let starts = harness.stored.events.iter();
        starts
            .filter(|it| matches!(it, EventKind::ToolStart { .. }))
            .count()
    };
    assert_eq!(started(&harness), 4, "the parallel limit");
    for (at, call) in calls.iter().take(5).enumerate() {
        assert!(!harness.model, "{at} have ended");
        harness.end_tool(call, "done");
    }
    assert_eq!(started(&harness), 5, "the limit per answer");
    assert!(harness.model, "all calls have results");
    let results = harness
        .history()
        .iter()
        .filter(|it| it.starts_with("tool:"))
        .count();
    assert!((6..1000).contains(&results), "{results}");
    let entries = harness.stored.entries.iter();
    let parts = entries.filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(&message.parts),
        _ => None,
    });
    let requested = parts
        .flatten()
        .filter(|it| matches!(it, Part::ToolCall { .. }));
    assert_eq!(requested.count(), results, "each call has a result");
    harness.answer_text("fewer, then");
    assert_eq!(harness.history().last().unwrap(), "model: fewer, then");
}

#[test]
fn model_is_told_which_changes_were_undone() {
    let mut harness = Harness::new();
    harness.restored_files = vec!["a.txt".to_owned()];
    harness.prompt(QueueMode::Followup);
    let history = harness.history();
    assert_eq!(history[0], "user: prompt 1");
    assert!(
        history[1].starts_with("user: The user undid"),
        "{history:?}"
    );
    assert!(history[1].ends_with("- a.txt"), "{history:?}");
}
