//! Property tests: every order of events leaves a state from which another host can continue.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rye_protocol::{CallState, Phase};

use super::*;

/// Invariants of the stored state after every batch.
pub(super) fn check(harness: &Harness) {
    let stored = &harness.stored;
    let ids: BTreeSet<_> = stored.entries.iter().map(|entry| &entry.id).collect();
    assert_eq!(ids.len(), stored.entries.len(), "duplicate entry id");
    for entry in &stored.entries {
        let known = entry
            .parent
            .as_ref()
            .is_none_or(|parent| ids.contains(parent));
        assert!(known, "missing parent entry");
    }
    assert_eq!(
        stored.thread.leaf.as_ref(),
        stored.entries.last().map(|entry| &entry.id)
    );
    let running = stored
        .prompts
        .values()
        .filter(|prompt| prompt.status == PromptStatus::Running);
    let running: Vec<_> = running.map(|prompt| &prompt.id).collect();
    let turn = stored.thread.turn.as_ref();
    assert_eq!(
        running,
        turn.map(|turn| &turn.prompt)
            .into_iter()
            .collect::<Vec<_>>()
    );
    for gate in stored
        .gates
        .values()
        .filter(|gate| gate.status.is_pending())
    {
        let same = turn.is_some_and(|turn| turn.prompt == gate.origin.prompt);
        assert!(same, "a pending gate belongs to no turn");
    }
    check_calls(harness);
}

/// Every call has one result, and all have it before the model is called again.
fn check_calls(harness: &Harness) {
    let stored = &harness.stored;
    let mut open = BTreeSet::new();
    for entry in &stored.entries {
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        if message.role != Role::Tool {
            assert!(
                open.is_empty(),
                "a message was appended before {open:?} ended"
            );
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
    let in_progress: BTreeSet<_> = match stored.thread.turn.as_ref().map(|turn| &turn.phase) {
        Some(Phase::Tools { calls, .. }) => {
            let calls = calls.iter().filter(|call| call.state != CallState::Ended);
            calls.map(|call| call.id.clone()).collect()
        }
        _ => BTreeSet::new(),
    };
    // The engine's own call is not in the history.
    let in_history = in_progress.iter().filter(|id| id.as_str() != REVIEW);
    let in_history: BTreeSet<_> = in_history.cloned().collect();
    assert_eq!(
        open, in_history,
        "calls without a result are not the calls in progress"
    );
    for (call, tool) in &harness.tools {
        assert!(in_progress.contains(call), "{tool} runs but is not stored");
    }
    if harness.model {
        let reserved = stored.thread.turn.as_ref().map(|turn| turn.reserved);
        assert_eq!(
            reserved,
            Some(TURN),
            "the model is called before the usage is reserved"
        );
        let phase = stored.thread.turn.as_ref().map(|turn| &turn.phase);
        assert_eq!(
            phase,
            Some(&Phase::Model),
            "the model is called outside the model phase"
        );
    }
}

/// A random action.
#[derive(Debug, Clone)]
enum Action {
    Prompt(QueueMode),
    Answer,
    RequestTools(Vec<&'static str>),
    Fail,
    EndTool(usize),
    RequestDecision(usize, u8),
    StartEffect(usize),
    Decide(usize),
    DecideWhileDown(usize),
    Abort,
    Pause,
    Resume,
    Restart,
    Wait(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let mode = prop_oneof![
        Just(QueueMode::Followup),
        Just(QueueMode::Steer),
        Just(QueueMode::Collect)
    ];
    let tool = prop::sample::select(vec![
        "pure", "once", "ask", "alone", "task", "asks", "nonsense",
    ]);
    let action = prop_oneof![
        4 => mode.prop_map(Action::Prompt),
        3 => Just(Action::Answer),
        5 => prop::collection::vec(tool, 1..4).prop_map(Action::RequestTools),
        1 => Just(Action::Fail),
        5 => (0..4_usize).prop_map(Action::EndTool),
        3 => (0..4_usize, 0..2_u8).prop_map(|(at, key)| Action::RequestDecision(at, key)),
        3 => (0..4_usize).prop_map(Action::StartEffect),
        3 => (0..4_usize).prop_map(Action::Decide),
        1 => (0..4_usize).prop_map(Action::DecideWhileDown),
        1 => Just(Action::Abort),
        1 => Just(Action::Pause),
        2 => Just(Action::Resume),
        3 => Just(Action::Restart),
        1 => (1..700_u64).prop_map(Action::Wait),
    ];
    prop::collection::vec(action, 0..60)
}

fn nth<T: Clone>(all: impl Iterator<Item = T>, at: usize) -> Option<T> {
    let all: Vec<_> = all.collect();
    (!all.is_empty()).then(|| all[at % all.len()].clone())
}

fn perform(harness: &mut Harness, action: Action) {
    let pending = |harness: &Harness, at| {
        let gates = harness.stored.gates.values();
        nth(
            gates
                .filter(|gate| gate.status.is_pending())
                .map(|gate| gate.id.clone()),
            at,
        )
    };
    match action {
        Action::Prompt(mode) => drop(harness.prompt(mode)),
        Action::Answer if harness.model => harness.answer_text("words"),
        Action::RequestTools(tools) if harness.model => drop(harness.request_tools(&tools)),
        Action::Fail if harness.model => {
            harness.model = false;
            let code = rye_protocol::ErrorCode::Model;
            let error = rye_protocol::ErrorInfo::new(code, "no");
            harness.input(Input::ModelAnswered(Err(error)));
        }
        Action::EndTool(at) => {
            if let Some(call) = nth(harness.tools.keys().cloned(), at) {
                harness.end_tool(&call, "result");
            }
        }
        Action::RequestDecision(at, key) => {
            if let Some(call) = nth(harness.tools.keys().cloned(), at) {
                harness.request_decision(&call, &format!("{call}-{key}"));
            }
        }
        Action::StartEffect(at) => {
            let tools = harness.tools.iter().filter(|(_, tool)| *tool == "asks");
            if let Some(call) = nth(tools.map(|(call, _)| call.clone()), at) {
                harness.input(Input::DeclareEffect(call, EffectClass::AtMostOnce));
            }
        }
        Action::Decide(at) => {
            if let Some(gate) = pending(harness, at) {
                harness.decide(&gate, "approve");
            }
        }
        Action::DecideWhileDown(at) => {
            if let Some(gate) = pending(harness, at) {
                harness.resolve(&gate, "approve");
            }
            harness.restart();
        }
        Action::Abort => {
            let partial = String::new();
            harness.input(Input::Abort {
                partial,
                clear_queue: true,
            });
        }
        Action::Pause => drop(harness.input(Input::Pause)),
        Action::Resume => drop(harness.input(Input::Resume)),
        Action::Restart => harness.restart(),
        Action::Wait(seconds) => {
            harness.now = harness.now.after(Duration::from_secs(seconds));
            harness.input(Input::Tick);
        }
        Action::Answer | Action::RequestTools(_) | Action::Fail => {}
    }
}

/// Completes all work: tools return, the model answers, people decide.
fn complete(harness: &mut Harness) {
    harness.input(Input::Resume);
    for _ in 0..1000 {
        if harness.model {
            harness.answer_text("the end");
        } else if let Some(call) = harness.tools.keys().next().cloned() {
            harness.end_tool(&call, "result");
        } else if let Some(gate) = harness
            .stored
            .gates
            .values()
            .find(|gate| gate.status.is_pending())
        {
            let gate = gate.id.clone();
            harness.decide(&gate, "skip");
        } else if harness
            .stored
            .prompts
            .values()
            .any(|prompt| !prompt.status.is_finished())
        {
            harness.now = harness.now.after(Duration::from_secs(6));
            harness.input(Input::Tick);
        } else {
            return;
        }
    }
    panic!("does not complete: {:#?}", harness.stored.thread);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_order_of_events_and_restarts_is_valid_and_completes(actions in actions()) {
        let mut harness = Harness::new();
        for action in actions {
            perform(&mut harness, action);
        }
        complete(&mut harness);
        prop_assert!(harness.stored.thread.turn.is_none());
        let gates = &harness.stored.gates;
        prop_assert!(gates.values().all(|gate| !gate.status.is_pending()), "{gates:?}");
    }

    #[test]
    fn at_most_once_tool_runs_once_without_a_gate(actions in actions()) {
        let mut harness = Harness::new();
        let mut gated = BTreeSet::new();
        for action in actions {
            perform(&mut harness, action);
            gated.extend(harness.stored.gates.values().map(|gate| gate.origin.call.clone()));
        }
        for entry in &harness.stored.entries {
            let EntryKind::Message(message) = &entry.kind else { continue };
            for part in &message.parts {
                if let Part::ToolCall { call_id, tool, .. } = part
                    && tool == "once"
                    && !gated.contains(call_id)
                {
                    let times = harness.started.get(call_id).copied().unwrap_or_default();
                    prop_assert!(times <= 1, "{call_id} was started {times} times");
                }
            }
        }
    }
}
