//! What becomes of what a dead host was doing.

use super::*;

#[test]
fn a_dead_hosts_model_call_is_made_again() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    world.die();
    world.say("hello");
    assert_eq!(world.story(), ["user: prompt 1", "model: hello"]);
}

#[test]
fn what_a_dead_host_left_is_done_by_its_effect() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let calls = world.want(&["pure", "once", "ask"]);
    world.die();
    assert!(world.tools.contains_key(&calls[0]), "pure runs again");
    assert!(!world.tools.contains_key(&calls[1]), "once does not");
    assert_eq!(world.begun[&calls[1]], 1);
    let gates: Vec<_> = world.record.gates.keys().cloned().collect();
    assert_eq!(gates.len(), 1, "and somebody is asked");
    world.end(&calls[0], "again");
    world.decide(&gates[0], "run_again");
    assert_eq!(world.begun[&calls[2]], 2);
    world.end(&calls[2], "again");
    world.say("done");
    assert_eq!(world.story()[2], "tool: Interrupted");
}

/// A tool that does one thing or another says which before it does it.
#[test]
fn what_a_call_says_of_itself_counts_until_it_is_run_again() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let calls = world.want(&["once", "once"]);
    for (call, effect) in [(0, ToolEffect::Idempotent), (1, ToolEffect::Ask)] {
        world.input(Input::Effect(calls[call].clone(), effect));
    }
    world.die();
    assert_eq!(world.begun[&calls[0]], 2, "it runs again");
    assert_eq!(world.begun[&calls[1]], 1, "and somebody is asked");
    let gate = world.record.gates.keys().next().unwrap().clone();
    world.decide(&gate, "skip");
    // It had not said yet what it does.
    world.die();
    assert_eq!(world.begun[&calls[0]], 2);
    assert!(world.story().contains(&"tool: Interrupted".to_owned()));
}

/// It has done nothing before it says so, wherever it is killed.
#[test]
fn a_call_that_asks_first_is_run_again_until_it_begins() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["asks"]).remove(0);
    world.die();
    assert_eq!(world.begun[&call], 2, "before it asks");
    let gate = world.ask(&call, "may-it");
    world.decide(&gate, "approve");
    world.die();
    assert_eq!(world.begun[&call], 3, "after it was let");
    world.ask(&call, "may-it");
    assert_eq!(world.replies.len(), 1, "it finds what was decided");
    world.input(Input::Effect(call.clone(), ToolEffect::AtMostOnce));
    world.die();
    assert_eq!(world.begun[&call], 3, "once it begins it does so no more");
    assert_eq!(world.story().last().unwrap(), "tool: Interrupted");
}

#[test]
fn whoever_lets_a_call_run_again_is_asked_again_when_its_host_dies_again() {
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["ask"]).remove(0);
    let mut asked = Vec::new();
    for times in 1..4 {
        world.die();
        assert_eq!(world.begun[&call], times);
        let mut gates = world.record.gates.values();
        let gate = gates.find(|gate| gate.status.is_pending()).unwrap();
        assert_eq!(gate.title, "ask was interrupted");
        assert_eq!(gate.context["params"], json!({}));
        assert!(gate.body.ends_with("with:\n│ {}"), "{}", gate.body);
        let gate = gate.id.clone();
        assert!(!asked.contains(&gate));
        asked.push(gate.clone());
        world.decide(&gate, "run_again");
    }
    world.end(&call, "at last");
    world.say("done");
    assert!(world.story().contains(&"tool: at last".to_owned()));
}

#[test]
fn a_person_may_skip_an_interrupted_call_or_give_its_result() {
    for (action, told) in [("skip", "tool: Aborted"), ("result", "tool: null")] {
        let mut world = World::new();
        world.prompt(QueueMode::Followup);
        world.want(&["ask"]);
        world.die();
        let gate = world.record.gates.keys().next().unwrap().clone();
        world.decide(&gate, action);
        assert!(world.tools.is_empty());
        assert_eq!(world.story().last().unwrap(), told);
        assert!(world.model);
    }
}

/// As when whoever keeps a tool's processes dies, and not the host.
#[test]
fn a_call_that_was_cut_off_is_told_as_such_or_asked_about() {
    for tool in ["once", "pure"] {
        let mut world = World::new();
        world.prompt(QueueMode::Followup);
        let call = world.want(&[tool]).remove(0);
        world.cut_off(&call);
        assert_eq!(world.begun[&call], 1);
        assert_eq!(world.story().last().unwrap(), "tool: Interrupted");
    }
    let mut world = World::new();
    world.prompt(QueueMode::Followup);
    let call = world.want(&["ask"]).remove(0);
    world.cut_off(&call);
    let gate = world.record.gates.keys().next().unwrap().clone();
    world.decide(&gate, "run_again");
    assert_eq!(world.begun[&call], 2);
}
