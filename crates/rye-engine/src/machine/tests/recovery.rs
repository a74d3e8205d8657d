//! Recovery of the work of a host that died.

use super::*;

#[test]
fn model_call_is_repeated_after_a_restart() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    harness.restart();
    harness.answer_text("hello");
    assert_eq!(harness.history(), ["user: prompt 1", "model: hello"]);
}

#[test]
fn tool_calls_are_recovered_by_effect_class() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let calls = harness.request_tools(&["pure", "once", "ask"]);
    harness.restart();
    assert!(harness.tools.contains_key(&calls[0]), "pure runs again");
    assert!(!harness.tools.contains_key(&calls[1]), "once does not");
    assert_eq!(harness.started[&calls[1]], 1);
    let gates: Vec<_> = harness.stored.gates.keys().cloned().collect();
    assert_eq!(gates.len(), 1, "`ask` opens a gate");
    harness.end_tool(&calls[0], "again");
    harness.decide(&gates[0], "run_again");
    assert_eq!(harness.started[&calls[2]], 2);
    harness.end_tool(&calls[2], "again");
    harness.answer_text("done");
    assert_eq!(harness.history()[2], "tool: Interrupted");
}

/// A tool can declare the effect class of each call.
#[test]
fn declared_effect_counts_until_the_call_is_repeated() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let calls = harness.request_tools(&["once", "once"]);
    for (call, effect) in [(0, EffectClass::Idempotent), (1, EffectClass::Ask)] {
        harness.input(Input::DeclareEffect(calls[call].clone(), effect));
    }
    harness.restart();
    assert_eq!(harness.started[&calls[0]], 2, "it runs again");
    assert_eq!(harness.started[&calls[1]], 1, "`ask` opens a gate");
    let gate = harness.stored.gates.keys().next().unwrap().clone();
    harness.decide(&gate, "skip");
    // The repeated call has not declared its effect yet.
    harness.restart();
    assert_eq!(harness.started[&calls[0]], 2);
    assert!(harness.history().contains(&"tool: Interrupted".to_owned()));
}

/// It has had no effect before it declares one, wherever it is killed.
#[test]
fn call_that_asks_first_is_repeated_until_its_effect_starts() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["asks"]).remove(0);
    harness.restart();
    assert_eq!(harness.started[&call], 2, "before it asks");
    let gate = harness.request_decision(&call, "approval");
    harness.decide(&gate, "approve");
    harness.restart();
    assert_eq!(harness.started[&call], 3, "after it was approved");
    harness.request_decision(&call, "approval");
    assert_eq!(harness.replies.len(), 1, "it finds the decision");
    harness.input(Input::DeclareEffect(call.clone(), EffectClass::AtMostOnce));
    harness.restart();
    assert_eq!(
        harness.started[&call], 3,
        "not repeated once its effect has started"
    );
    assert_eq!(harness.history().last().unwrap(), "tool: Interrupted");
}

#[test]
fn each_interruption_asks_again() {
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["ask"]).remove(0);
    let mut opened = Vec::new();
    for times in 1..4 {
        harness.restart();
        assert_eq!(harness.started[&call], times);
        let mut gates = harness.stored.gates.values();
        let gate = gates.find(|gate| gate.status.is_pending()).unwrap();
        assert_eq!(gate.title, "ask was interrupted");
        assert_eq!(gate.context["params"], json!({}));
        assert!(gate.body.ends_with("with:\n│ {}"), "{}", gate.body);
        let gate = gate.id.clone();
        assert!(!opened.contains(&gate));
        opened.push(gate.clone());
        harness.decide(&gate, "run_again");
    }
    harness.end_tool(&call, "at last");
    harness.answer_text("done");
    assert!(harness.history().contains(&"tool: at last".to_owned()));
}

#[test]
fn interrupted_call_can_be_skipped_or_given_a_result() {
    for (action, expected) in [("skip", "tool: Aborted"), ("result", "tool: null")] {
        let mut harness = Harness::new();
        harness.prompt(QueueMode::Followup);
        harness.request_tools(&["ask"]);
        harness.restart();
        let gate = harness.stored.gates.keys().next().unwrap().clone();
        harness.decide(&gate, action);
        assert!(harness.tools.is_empty());
        assert_eq!(harness.history().last().unwrap(), expected);
        assert!(harness.model);
    }
}

/// For example when the supervisor of a tool's processes dies, but not the host.
#[test]
fn interrupted_call_is_reported_or_asked_about() {
    for tool in ["once", "pure"] {
        let mut harness = Harness::new();
        harness.prompt(QueueMode::Followup);
        let call = harness.request_tools(&[tool]).remove(0);
        harness.interrupt(&call);
        assert_eq!(harness.started[&call], 1);
        assert_eq!(harness.history().last().unwrap(), "tool: Interrupted");
    }
    let mut harness = Harness::new();
    harness.prompt(QueueMode::Followup);
    let call = harness.request_tools(&["ask"]).remove(0);
    harness.interrupt(&call);
    let gate = harness.stored.gates.keys().next().unwrap().clone();
    harness.decide(&gate, "run_again");
    assert_eq!(harness.started[&call], 2);
}

/// The decision could have no effect any more, and the call must not be repeated.
#[test]
fn gate_of_a_call_whose_effect_had_begun_is_withdrawn() {
    for is_decided in [false, true] {
        let mut harness = Harness::new();
        harness.prompt(QueueMode::Followup);
        let call = harness.request_tools(&["asks"]).remove(0);
        harness.input(Input::DeclareEffect(call.clone(), EffectClass::AtMostOnce));
        let request = DecisionRequest::approval("connect", "Connect?").while_running();
        harness.input(Input::RequestDecision(call.clone(), Box::new(request)));
        let gate = harness.stored.gates.keys().next().unwrap().clone();
        if is_decided {
            harness.resolve(&gate, "approve");
        }
        harness.restart();
        assert_eq!(harness.started[&call], 1, "it is not repeated");
        assert_eq!(harness.history().last().unwrap(), "tool: Interrupted");
        let status = &harness.stored.gates[&gate].status;
        assert!(!status.is_pending(), "{status:?}");
        assert!(harness.model);
    }
}

/// The engine's own call leaves a note for the model, but no call or result in the history.
#[test]
fn review_ends_the_turn_also_after_a_restart() {
    let mut harness = Harness::new();
    harness.reviews_changes = true;
    harness.prompt(QueueMode::Followup);
    harness.answer_text("hello");
    let review: CallId = REVIEW.parse().unwrap();
    assert!(harness.machine.thread.turn.is_some(), "the turn waits");
    harness.restart();
    assert_eq!(harness.started[&review], 2, "it runs again");
    harness.end_tool(&review, "applied");
    assert!(harness.machine.thread.turn.is_none());
    let expected = ["user: prompt 1", "model: hello", "user: applied"];
    assert_eq!(harness.history(), expected);
    // No model can call it.
    harness.prompt(QueueMode::Followup);
    harness.request_tools(&[REVIEW]);
    assert_eq!(harness.started[&review], 2);
    assert_eq!(harness.history().last().unwrap(), "tool: Error");
}

#[test]
fn aborted_review_leaves_no_result_in_the_history() {
    let mut harness = Harness::new();
    harness.reviews_changes = true;
    harness.prompt(QueueMode::Followup);
    harness.answer_text("hello");
    harness.input(Input::Abort {
        partial: String::new(),
        clear_queue: false,
    });
    assert!(harness.machine.thread.turn.is_none());
    assert_eq!(harness.history(), ["user: prompt 1", "model: hello"]);
}
