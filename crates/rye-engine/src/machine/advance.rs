//! Decides the next steps by comparing the stored state with the work that runs here.
//!
//! | stored state | runs here | does not run here |
//! |---|---|---|
//! | prompt waiting, no turn | – | start it |
//! | compaction in progress | wait | start it again: nothing was changed |
//! | model call in progress | wait | call again: it had no effect |
//! | call requested | – | start it |
//! | call started | wait | by effect class: run again, `interrupted`, or ask |
//! | call blocked at a pending gate | wait | wait; if its effect had begun, as a started call |
//! | call's gate closed | tell the tool | run the tool again; it finds the closed gate |
//! | all calls ended | – | call the model |

use rye_protocol::{
    Call, CallState, CompactionReason, EventKind, LimitKind, Millis, Phase, PromptStatus,
    QueuedPrompt, SessionId, ThreadStatus, Turn,
};

use super::limit_gate::LimitScope;
use super::{Effect, Step, ToolTraits};
use crate::child;
use crate::review::{REVIEW, is_review};
use crate::tool::{EffectClass, WHILE_RUNNING};

/// Maximum model calls for one prompt that sets no limit.
pub(super) const MAX_ROUNDS: u32 = 500;

impl Step<'_> {
    /// Takes all steps that are possible now.
    pub(super) fn advance(&mut self) {
        self.reply_to_tools();
        self.run_turn();
        // Last, because the steps may have added deadlines.
        self.schedule_wake();
    }

    fn run_turn(&mut self) {
        let paused = self.context.paused || self.machine.thread.status != ThreadStatus::Active;
        if paused {
            return;
        }
        self.apply_increase();
        if self.out.session.increase.is_some() {
            // Continue once the increase is committed.
            return;
        }
        loop {
            let Some(turn) = &self.machine.thread.turn else {
                if self.compact() {
                    return;
                }
                match self.next_prompt() {
                    Some(at) => self.begin(at),
                    None => return,
                }
                continue;
            };
            match self.limit_of_prompt(turn) {
                Some((LimitKind::Duration, scope)) => {
                    self.on_limit(LimitKind::Duration, scope);
                    continue;
                }
                _ if self.machine.is_waiting_at_limit() => return,
                Some((limit, scope)) => {
                    self.on_limit(limit, scope);
                    continue;
                }
                None => {}
            }
            let (model, checked) = (turn.model.clone(), !turn.skip_size_check);
            if self.compact() {
                return;
            }
            let Some(turn) = &self.machine.thread.turn else {
                continue;
            };
            match &turn.phase {
                Phase::Model if checked && !self.machine.live.model && self.is_full(&model) => {
                    self.begin_compaction(CompactionReason::Threshold);
                }
                Phase::Model => return self.call_model(),
                Phase::Tools { calls, .. } => {
                    if calls.iter().any(|call| call.state != CallState::Ended) {
                        let calls = calls.clone();
                        self.advance_calls(&calls);
                    }
                    if !self.all_ended() {
                        return;
                    }
                    if let Some(turn) = &mut self.machine.thread.turn {
                        turn.phase = Phase::Model;
                    }
                }
            }
        }
    }

    /// Reserves the minimum usage of a model call and makes it.
    fn call_model(&mut self) {
        if self.machine.live.model {
            return;
        }
        self.machine.live.model = true;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        let model = turn.model.clone();
        let lost = std::mem::replace(&mut turn.reserved, self.context.reserve);
        // A host that died during a call had made it.
        self.add_usage(lost);
        self.out.effects.push(Effect::CallModel { model });
    }

    /// The limit that is reached, and whether it is the prompt's or the session's.
    fn limit_of_prompt(&self, turn: &Turn) -> Option<(LimitKind, LimitScope)> {
        let is_over = |until: Option<Millis>| until.is_some_and(|it| self.context.now >= it);
        let limits = &self.running()?.limits;
        // A running call may finish, except when time is up.
        if is_over(self.context.until) {
            return Some((LimitKind::Duration, LimitScope::Session));
        }
        if is_over(limits.until) {
            return Some((LimitKind::Duration, LimitScope::Prompt));
        }
        let reached = limits.reached(&turn.usage, self.context.now);
        let reached = reached.or(self.is_endless().then_some(LimitKind::Turns))?;
        let is_between_calls = turn.phase == Phase::Model && !self.machine.live.model;
        is_between_calls.then_some((reached, LimitScope::Prompt))
    }

    /// Whether the prompt has reached the round limit for prompts without a limit.
    pub(super) fn is_endless(&self) -> bool {
        let turn = self.machine.thread.turn.as_ref();
        let rounds = turn.map_or(0, |turn| turn.round);
        let unlimited = self.running().is_some_and(|it| it.limits.turns.is_none());
        unlimited && rounds >= MAX_ROUNDS
    }

    /// The running prompt.
    pub(super) fn running(&self) -> Option<&QueuedPrompt> {
        let turn = self.machine.thread.turn.as_ref()?;
        let mut prompts = self.machine.prompts.iter();
        prompts
            .find(|prompt| prompt.id == turn.prompt)
            .map(|prompt| &**prompt)
    }

    /// Index of the first waiting prompt whose collect window is closed.
    fn next_prompt(&self) -> Option<usize> {
        let now = self.context.now;
        self.machine.prompts.iter().position(|prompt| {
            let open = prompt.collect_until.is_some_and(|until| until > now);
            prompt.status == PromptStatus::Waiting && !open
        })
    }

    fn all_ended(&mut self) -> bool {
        let calls = self.machine.calls();
        calls.iter().all(|call| call.state == CallState::Ended)
    }

    fn advance_calls(&mut self, calls: &[Call]) {
        // An exclusive call that cannot start yet holds back the calls after it, so that an edit
        // runs before the command that the model requested next.
        let mut held_back = false;
        for call in calls {
            match &call.state {
                CallState::Ended => {}
                CallState::Requested if held_back => {}
                CallState::Requested => held_back = !self.start_if_free(call),
                CallState::Started if self.machine.live.calls.contains(&call.id) => {}
                CallState::Started => self.recover_call(call),
                CallState::Blocked { gate } => {
                    let gate = self.machine.gates.get(gate);
                    let pending = gate.is_some_and(|gate| gate.status.is_pending());
                    let had_begun =
                        gate.is_some_and(|gate| gate.context.contains_key(WHILE_RUNNING));
                    if had_begun && !self.machine.live.calls.contains(&call.id) {
                        self.withdraw_gates("ended", |gate| gate.origin.call == call.id);
                        self.recover_call(call);
                    } else if !pending {
                        self.unblock(call);
                    }
                }
            }
        }
    }

    /// Starts a call unless an exclusive call is in the way or too many calls run. Returns
    /// whether it was started.
    fn start_if_free(&mut self, call: &Call) -> bool {
        let traits = self.context.tools.traits(&call.tool);
        // Only the engine calls the review.
        let traits = traits.filter(|_| call.tool != REVIEW || is_review(call));
        let Some(ToolTraits { exclusive, .. }) = traits else {
            self.unknown_tool(call);
            return true;
        };
        let tools = self.context.tools;
        let active = |other: &&mut Call| {
            matches!(other.state, CallState::Started | CallState::Blocked { .. })
        };
        let calls = self.machine.calls();
        let running = calls.iter().filter(|it| it.state == CallState::Started);
        if running.count() >= self.context.calls.parallel {
            return false;
        }
        let mut active = calls.iter_mut().filter(active);
        let alone = |other: &mut Call| tools.traits(&other.tool).is_some_and(|it| it.exclusive);
        let in_the_way = active.any(|other| exclusive || alone(other));
        if !in_the_way {
            self.start(call);
        }
        !in_the_way
    }

    pub(super) fn start(&mut self, call: &Call) {
        let args = self.machine.args.get(&call.id).cloned().unwrap_or_default();
        let may_request_decision = self
            .context
            .tools
            .traits(&call.tool)
            .is_some_and(|it| it.may_request_decision);
        if let Some(call) = self.machine.call(&call.id) {
            call.state = CallState::Started;
            // A tool that may request a decision declares when its effect starts; until then its
            // call may be repeated.
            call.effect = may_request_decision.then_some(EffectClass::Idempotent);
        }
        self.machine.live.calls.insert(call.id.clone());
        self.emit(EventKind::ToolStart {
            call: call.id.clone(),
            tool: call.tool.clone(),
        });
        if let Some(session) = self.child_of(call) {
            self.emit(EventKind::TaskStart { session });
        }
        self.out.effects.push(Effect::RunTool {
            call: call.id.clone(),
            tool: call.tool.clone(),
            args,
        });
    }

    /// The child session of a task call.
    pub(super) fn child_of(&self, call: &Call) -> Option<SessionId> {
        let args = self.machine.args.get(&call.id);
        let is_task = self.context.tools.traits(&call.tool)?.is_task
            && !args.is_some_and(child::is_in_background);
        let thread = &self.machine.thread;
        let prompt = &thread.turn.as_ref()?.prompt;
        is_task.then(|| child::id(&thread.session, &thread.id, prompt, &call.id))
    }

    /// Recovers a call that had started when its host died.
    fn recover_call(&mut self, call: &Call) {
        let of_tool = self.context.tools.traits(&call.tool).map(|it| it.effect);
        match of_tool.map(|of_tool| call.effect.unwrap_or(of_tool)) {
            Some(EffectClass::Pure | EffectClass::Idempotent) => self.start(call),
            Some(EffectClass::Ask) => self.ask_to_repeat(call),
            Some(EffectClass::AtMostOnce) | None => self.append_interrupted(call),
        }
    }

    /// Handles a call that was interrupted while its host lives. It is not repeated, not even
    /// an idempotent one: it might be interrupted forever.
    pub(super) fn on_interrupted(&mut self, call: &Call) {
        let of_tool = self.context.tools.traits(&call.tool).map(|it| it.effect);
        match call.effect.or(of_tool) {
            Some(EffectClass::Ask) => self.ask_to_repeat(call),
            _ => self.append_interrupted(call),
        }
    }

    /// Requests a tick at the next deadline.
    fn schedule_wake(&mut self) {
        let gates = self.machine.gates.values();
        let gates = gates.filter(|gate| gate.status.is_pending());
        let gates = gates.filter_map(|gate| gate.expires_at);
        let windows = self
            .machine
            .prompts
            .iter()
            .filter_map(|prompt| prompt.collect_until);
        let prompt = self.running().and_then(|prompt| prompt.limits.until);
        let turn = self.machine.thread.turn.as_ref();
        let time = turn.and_then(|_| self.context.until.into_iter().chain(prompt).min());
        if let Some(at) = gates.chain(windows).chain(time).min() {
            self.out.effects.push(Effect::WakeAt(at));
        }
    }
}
