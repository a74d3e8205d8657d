//! Whatever happens in whatever order, the record is one that can be gone on from.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rye_protocol::{CallState, Phase};

use super::*;

/// What must hold of a record after every single batch.
pub(super) fn check(world: &World) {
    let record = &world.record;
    let ids: BTreeSet<_> = record.entries.iter().map(|entry| &entry.id).collect();
    assert_eq!(ids.len(), record.entries.len(), "two entries have one id");
    for entry in &record.entries {
        let known = entry
            .parent
            .as_ref()
            .is_none_or(|parent| ids.contains(parent));
        assert!(known, "an entry's parent is not there");
    }
    assert_eq!(
        record.thread.leaf.as_ref(),
        record.entries.last().map(|entry| &entry.id)
    );
    let running = record
        .prompts
        .values()
        .filter(|prompt| prompt.status == PromptStatus::Running);
    let running: Vec<_> = running.map(|prompt| &prompt.id).collect();
    let turn = record.thread.turn.as_ref();
    assert_eq!(
        running,
        turn.map(|turn| &turn.prompt)
            .into_iter()
            .collect::<Vec<_>>()
    );
    for gate in record
        .gates
        .values()
        .filter(|gate| gate.status.is_pending())
    {
        let same = turn.is_some_and(|turn| turn.prompt == gate.origin.prompt);
        assert!(same, "a gate waits that no turn waits for");
    }
    check_calls(world);
}

/// Every call has one end, and all have it before the model is called again.
fn check_calls(world: &World) {
    let record = &world.record;
    let mut open = BTreeSet::new();
    for entry in &record.entries {
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        if message.role != Role::Tool {
            assert!(open.is_empty(), "something was said before {open:?} ended");
        }
        for part in &message.parts {
            match part {
                Part::ToolCall { call_id, .. } => drop(open.insert(call_id.clone())),
                Part::ToolResult { call_id, .. } => {
                    assert!(open.remove(call_id), "{call_id} ended twice");
                }
                _ => {}
            }
        }
    }
    let recorded: BTreeSet<_> = match record.thread.turn.as_ref().map(|turn| &turn.phase) {
        Some(Phase::Tools { calls, .. }) => {
            let calls = calls.iter().filter(|call| call.state != CallState::Ended);
            calls.map(|call| call.id.clone()).collect()
        }
        _ => BTreeSet::new(),
    };
    assert_eq!(
        open, recorded,
        "calls without an end are not those that are under way"
    );
    for (call, tool) in &world.tools {
        assert!(
            recorded.contains(call),
            "{tool} runs and is not written down"
        );
    }
    if world.model {
        let reserved = record.thread.turn.as_ref().map(|turn| turn.reserved);
        assert_eq!(
            reserved,
            Some(TURN),
            "the model is called before it is counted"
        );
        let phase = record.thread.turn.as_ref().map(|turn| &turn.phase);
        assert_eq!(
            phase,
            Some(&Phase::Model),
            "the model is called for nothing"
        );
    }
}

/// Something that may happen.
#[derive(Debug, Clone)]
enum Act {
    Prompt(QueueMode),
    Say,
    Want(Vec<&'static str>),
    Fail,
    End(usize),
    Ask(usize, u8),
    Begin(usize),
    Decide(usize),
    DecideWhileDown(usize),
    Abort,
    Pause,
    Resume,
    Die,
    BoxFuture(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let mode = prop_oneof![
        Just(QueueMode::Followup),
        Just(QueueMode::Steer),
        Just(QueueMode::Collect)
    ];
    let tool = prop::sample::select(vec![
        "pure", "once", "ask", "alone", "task", "asks", "nonsense",
    ]);
    let act = prop_oneof![
        4 => mode.prop_map(Act::Prompt),
        3 => Just(Act::Say),
        5 => prop::collection::vec(tool, 1..4).prop_map(Act::Want),
        1 => Just(Act::Fail),
        5 => (0..4_usize).prop_map(Act::End),
        3 => (0..4_usize, 0..2_u8).prop_map(|(at, key)| Act::Ask(at, key)),
        3 => (0..4_usize).prop_map(Act::Begin),
        3 => (0..4_usize).prop_map(Act::Decide),
        1 => (0..4_usize).prop_map(Act::DecideWhileDown),
        1 => Just(Act::Abort),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        3 => Just(Act::Die),
        1 => (1..700_u64).prop_map(Act::BoxFuture),
    ];
    prop::collection::vec(act, 0..60)
}

fn nth<T: Clone>(all: impl Iterator<Item = T>, at: usize) -> Option<T> {
    let all: Vec<_> = all.collect();
    (!all.is_empty()).then(|| all[at % all.len()].clone())
}

fn act(world: &mut World, act: Act) {
    let pending = |world: &World, at| {
        let gates = world.record.gates.values();
        nth(
            gates
                .filter(|gate| gate.status.is_pending())
                .map(|gate| gate.id.clone()),
            at,
        )
    };
    match act {
        Act::Prompt(mode) => drop(world.prompt(mode)),
        Act::Say if world.model => world.say("words"),
        Act::Want(tools) if world.model => drop(world.want(&tools)),
        Act::Fail if world.model => {
            world.model = false;
            let code = rye_protocol::ErrorCode::Model;
            let error = rye_protocol::ErrorInfo::new(code, "no");
            world.input(Input::Answered(Err(error)));
        }
        Act::End(at) => {
            if let Some(call) = nth(world.tools.keys().cloned(), at) {
                world.end(&call, "result");
            }
        }
        Act::Ask(at, key) => {
            if let Some(call) = nth(world.tools.keys().cloned(), at) {
                world.ask(&call, &format!("{call}-{key}"));
            }
        }
        Act::Begin(at) => {
            let tools = world.tools.iter().filter(|(_, tool)| *tool == "asks");
            if let Some(call) = nth(tools.map(|(call, _)| call.clone()), at) {
                world.input(Input::Effect(call, ToolEffect::AtMostOnce));
            }
        }
        Act::Decide(at) => {
            if let Some(gate) = pending(world, at) {
                world.decide(&gate, "approve");
            }
        }
        Act::DecideWhileDown(at) => {
            if let Some(gate) = pending(world, at) {
                world.resolve(&gate, "approve");
            }
            world.die();
        }
        Act::Abort => {
            let partial = String::new();
            world.input(Input::Abort {
                partial,
                clear_queue: true,
            });
        }
        Act::Pause => drop(world.input(Input::Pause)),
        Act::Resume => drop(world.input(Input::Resume)),
        Act::Die => world.die(),
        Act::BoxFuture(seconds) => {
            world.now = world.now.after(Duration::from_secs(seconds));
            world.input(Input::Tick);
        }
        Act::Say | Act::Want(_) | Act::Fail => {}
    }
}

/// Lets everything come to its end: tools return, the model ends, people decide.
fn settle(world: &mut World) {
    world.input(Input::Resume);
    for _ in 0..1000 {
        if world.model {
            world.say("the end");
        } else if let Some(call) = world.tools.keys().next().cloned() {
            world.end(&call, "result");
        } else if let Some(gate) = world
            .record
            .gates
            .values()
            .find(|gate| gate.status.is_pending())
        {
            let gate = gate.id.clone();
            world.decide(&gate, "skip");
        } else if world
            .record
            .prompts
            .values()
            .any(|prompt| !prompt.status.is_finished())
        {
            world.now = world.now.after(Duration::from_secs(6));
            world.input(Input::Tick);
        } else {
            return;
        }
    }
    panic!("it does not come to an end: {:#?}", world.record.thread);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_order_of_events_and_deaths_is_legal_and_comes_to_an_end(acts in acts()) {
        let mut world = World::new();
        for one in acts {
            act(&mut world, one);
        }
        settle(&mut world);
        prop_assert!(world.record.thread.turn.is_none());
        prop_assert!(world.record.suspended.is_empty(), "{:?}", world.record.suspended);
    }

    #[test]
    fn a_tool_that_must_not_run_twice_does_not_without_a_gate(acts in acts()) {
        let mut world = World::new();
        let mut asked = BTreeSet::new();
        for one in acts {
            act(&mut world, one);
            asked.extend(world.record.gates.values().map(|gate| gate.origin.call.clone()));
        }
        for entry in &world.record.entries {
            let EntryKind::Message(message) = &entry.kind else { continue };
            for part in &message.parts {
                if let Part::ToolCall { call_id, tool, .. } = part
                    && tool == "once"
                    && !asked.contains(call_id)
                {
                    let times = world.begun.get(call_id).copied().unwrap_or_default();
                    prop_assert!(times <= 1, "{call_id} was begun {times} times");
                }
            }
        }
    }
}
