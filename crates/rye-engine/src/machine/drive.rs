//! What comes next: read off the record, and off what runs in this process.
//!
//! | the record says | and it runs here | it does not |
//! |---|---|---|
//! | a prompt waits, no turn | – | it begins |
//! | the history is being summed up | wait | begin again: nothing was changed |
//! | the model is being called | wait | call it: no effect was possible |
//! | a call is requested | – | it starts |
//! | a call has started | wait | by its effect: again, `interrupted`, or ask |
//! | a call waits at a gate that is pending | wait | wait |
//! | the gate has ended | tell the tool | run the tool again, which finds it ended |
//! | all calls have ended | – | call the model |

use rye_protocol::{
    Call, CallState, CompactionReason, EventKind, Phase, PromptStatus, QueuedPrompt, SessionId,
    ThreadStatus, Turn,
};

use super::more::Whose;
use super::{Effect, Fact, Step};
use crate::child;
use crate::tool::Effect as ToolEffect;

/// How often a model is called for one prompt where no limit says otherwise.
pub(super) const MOST_ROUNDS: u32 = 500;

impl Step<'_> {
    /// Does what comes next, until something must be waited for.
    pub(super) fn drive(&mut self) {
        self.reply();
        self.proceed();
        // Last: what has begun now has a time too.
        self.wake();
    }

    fn proceed(&mut self) {
        let paused = self.env.paused || self.machine.thread.status != ThreadStatus::Active;
        if paused {
            return;
        }
        self.take_more();
        if self.out.raise.is_some() {
            // It goes on once that is written.
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
            if self.machine.asks_for_more() {
                return;
            }
            if let Some((limit, whose)) = self.limit_of_prompt(turn) {
                self.reached(limit, whose);
                continue;
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
                        self.move_calls(&calls);
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

    /// Reserves what a call of the model uses up at least, and makes it.
    fn call_model(&mut self) {
        if self.machine.live.model {
            return;
        }
        self.machine.live.model = true;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        let model = turn.model.clone();
        let left = std::mem::replace(&mut turn.reserved, self.env.reserve);
        // A host that died in the middle of a call had made it.
        self.use_up(left);
        self.out.effects.push(Effect::CallModel { model });
    }

    /// The limit of the prompt that is reached; that of the session, if it is its time.
    fn limit_of_prompt(&self, turn: &Turn) -> Option<(&'static str, Whose)> {
        // What a call in progress uses up is its own; time is up for all, unless somebody is
        // asked for more of it: that is done between calls.
        let between = turn.phase == Phase::Model && !self.machine.live.model;
        let now = between || !self.env.asks_for_more;
        if now && self.env.until.is_some_and(|until| self.env.now >= until) {
            return Some(("duration", Whose::Session));
        }
        let limits = &self.running()?.limits;
        let reached = limits.reached(&turn.usage, self.env.now);
        let reached = reached.or(self.is_endless().then_some("turns"))?;
        let now = between || (reached == "duration" && now);
        now.then_some((reached, Whose::Prompt))
    }

    /// Whether the model calls tools without end, and nobody has said when that is.
    pub(super) fn is_endless(&self) -> bool {
        let turn = self.machine.thread.turn.as_ref();
        let rounds = turn.map_or(0, |turn| turn.round);
        let unlimited = self.running().is_some_and(|it| it.limits.turns.is_none());
        unlimited && rounds >= MOST_ROUNDS
    }

    /// The prompt that runs.
    pub(super) fn running(&self) -> Option<&QueuedPrompt> {
        let turn = self.machine.thread.turn.as_ref()?;
        let mut prompts = self.machine.prompts.iter();
        prompts
            .find(|prompt| prompt.id == turn.prompt)
            .map(|prompt| &**prompt)
    }

    /// The first that waits and is not being collected.
    fn next_prompt(&self) -> Option<usize> {
        let now = self.env.now;
        self.machine.prompts.iter().position(|prompt| {
            let open = prompt.collect_until.is_some_and(|until| until > now);
            prompt.status == PromptStatus::Waiting && !open
        })
    }

    fn all_ended(&mut self) -> bool {
        let calls = self.machine.calls();
        calls.iter().all(|call| call.state == CallState::Ended)
    }

    fn move_calls(&mut self, calls: &[Call]) {
        // One that runs alone and cannot yet holds back those after it: a model that wants an
        // edit and then a command wants them in this order.
        let mut held_back = false;
        for call in calls {
            match &call.state {
                CallState::Ended => {}
                CallState::Requested if held_back => {}
                CallState::Requested => held_back = !self.start_if_free(call),
                CallState::Started if self.machine.live.calls.contains(&call.id) => {}
                CallState::Started => self.left_by_a_dead_host(call),
                CallState::Blocked { gate } => {
                    let gate = self.machine.gates.get(gate);
                    let pending = gate.is_some_and(|gate| gate.status.is_pending());
                    if !pending {
                        self.unblock(call);
                    }
                }
            }
        }
    }

    /// Starts a call, unless one that runs alone stands in the way, or it runs alone itself, or
    /// as many run as may at once. Whether it did.
    fn start_if_free(&mut self, call: &Call) -> bool {
        let Some(Fact { exclusive, .. }) = self.env.tools.of(&call.tool) else {
            self.unknown_tool(call);
            return true;
        };
        let tools = self.env.tools;
        let active = |other: &&mut Call| {
            matches!(other.state, CallState::Started | CallState::Blocked { .. })
        };
        let calls = self.machine.calls();
        let running = calls.iter().filter(|it| it.state == CallState::Started);
        if running.count() >= self.env.calls.parallel {
            return false;
        }
        let mut active = calls.iter_mut().filter(active);
        let alone = |other: &mut Call| tools.of(&other.tool).is_some_and(|it| it.exclusive);
        let in_the_way = active.any(|other| exclusive || alone(other));
        if !in_the_way {
            self.start(call);
        }
        !in_the_way
    }

    pub(super) fn start(&mut self, call: &Call) {
        let args = self.machine.args.get(&call.id).cloned().unwrap_or_default();
        let may_request_decision = self
            .env
            .tools
            .of(&call.tool)
            .is_some_and(|it| it.may_request_decision);
        if let Some(call) = self.machine.call(&call.id) {
            call.state = CallState::Started;
            // One that asks first has done nothing before it says so. Of any other, what it
            // did until then is what its tool does.
            call.effect = may_request_decision.then_some(ToolEffect::Idempotent);
        }
        self.machine.live.calls.insert(call.id.clone());
        self.tell(EventKind::ToolStart {
            call: call.id.clone(),
            tool: call.tool.clone(),
        });
        if let Some(session) = self.child_of(call) {
            self.tell(EventKind::TaskStart { session });
        }
        self.out.effects.push(Effect::RunTool {
            call: call.id.clone(),
            tool: call.tool.clone(),
            args,
        });
    }

    /// The session that a call is, if it is one.
    pub(super) fn child_of(&self, call: &Call) -> Option<SessionId> {
        let is_task = self.env.tools.of(&call.tool)?.is_task;
        let thread = &self.machine.thread;
        let prompt = &thread.turn.as_ref()?.prompt;
        is_task.then(|| child::id(&thread.session, &thread.id, prompt, &call.id))
    }

    /// A call that had started when its host died.
    fn left_by_a_dead_host(&mut self, call: &Call) {
        let of_tool = self.env.tools.of(&call.tool).map(|it| it.effect);
        match of_tool.map(|of_tool| call.effect.unwrap_or(of_tool)) {
            Some(ToolEffect::Pure | ToolEffect::Idempotent) => self.start(call),
            Some(ToolEffect::Ask) => self.ask_to_run_again(call),
            Some(ToolEffect::AtMostOnce) | None => self.interrupt(call),
        }
    }

    /// A call that was cut off though its host lives. What may be repeated is not either: it
    /// might be cut off for ever.
    pub(super) fn cut_off(&mut self, call: &Call) {
        let of_tool = self.env.tools.of(&call.tool).map(|it| it.effect);
        match call.effect.or(of_tool) {
            Some(ToolEffect::Ask) => self.ask_to_run_again(call),
            _ => self.interrupt(call),
        }
    }

    /// When to look again: at the next deadline.
    fn wake(&mut self) {
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
        let time = turn.and_then(|_| self.env.until.into_iter().chain(prompt).min());
        if let Some(at) = gates.chain(windows).chain(time).min() {
            self.out.effects.push(Effect::WakeAt(at));
        }
    }
}
