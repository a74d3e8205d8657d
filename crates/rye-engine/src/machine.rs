//! A thread as a state machine: what is to be written, and what is to be done once it is.
//!
//! Pure: an [`Input`] comes in, an [`Output`] goes out, and neither clock nor store nor
//! model is touched. What a thread does after a restart is not a case of its own:
//! [`drive`](drive) looks at the record, and at what runs in this process, and after a
//! restart nothing does.

mod calls;
mod compaction;
mod continuation;
mod drive;
mod env;
mod failover;
mod gates;
mod input;
mod kept;
mod more;
mod output;
mod queue;
mod result;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_protocol::{
    Batch, Call, CallId, CallState, CompactionReason, Entry, EntryId, EntryKind, EventKind, Gate,
    GateId, Op, Part, Phase, PromptId, PromptStatus, QueuedPrompt, StatusKind, Thread,
    ThreadStatus, Usage,
};
use serde_json::Value;

use crate::audit;
use crate::tokens;
use continuation::Continuation;
use more::Whose;

pub(crate) use more::{Raise, is_no_amount};

pub(crate) use compaction::{Compacted, Windows};
pub use env::CallLimits;
pub(crate) use env::{Children, Env, Fact, Facts};
pub(crate) use input::{Artifact, Input, PostedOrder};
pub(crate) use kept::Kept;
pub(crate) use output::{Effect, Output};

/// A thread, as it was written down, and what of it runs in this process.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) thread: Kept<Thread>,
    /// What waits or runs, in order.
    pub(crate) prompts: Vec<Kept<QueuedPrompt>>,
    /// The gates of the prompt that runs.
    pub(crate) gates: BTreeMap<GateId, Kept<Gate>>,
    /// The arguments of the calls that are being carried out, from their entry.
    args: Kept<BTreeMap<CallId, Value>>,
    live: Live,
}

/// What runs in this process. Nothing, after a restart.
#[derive(Debug, Clone, Default)]
struct Live {
    model: bool,
    /// The history is being summed up.
    compacting: bool,
    calls: BTreeSet<CallId>,
    /// Calls that wait for a gate's end.
    waiting: BTreeSet<(CallId, GateId)>,
}

impl Machine {
    /// A thread as it was written down. `entry` is the one whose calls are being carried out.
    pub(crate) fn new(
        thread: Thread,
        prompts: Vec<QueuedPrompt>,
        gates: Vec<Gate>,
        entry: Option<&Entry>,
    ) -> Self {
        Self {
            thread: Kept::new(thread),
            prompts: prompts.into_iter().map(Kept::new).collect(),
            gates: gates
                .into_iter()
                .map(|gate| (gate.id.clone(), Kept::new(gate)))
                .collect(),
            args: Kept::new(entry.map(args_of).unwrap_or_default()),
            live: Live::default(),
        }
    }

    /// Takes in what happened.
    pub(crate) fn handle(&mut self, input: Input, env: &Env<'_>) -> Output {
        let before = self.thread.clone();
        let gates = self.gates.clone();
        let mut step = Step {
            machine: self,
            env,
            out: Output::default(),
        };
        step.take(input);
        step.drive();
        let mut out = step.out;
        audit::fold_events(&mut self.thread, &out.batch.ops);
        if !self.thread.is(&before) && self.thread != before {
            self.thread.updated_at = env.now;
            self.seal(&mut out.batch, &gates, env);
            // The thread goes first: whoever reads the batch sees where it leads.
            out.batch.ops.insert(0, Op::PutThread(self.thread.share()));
        }
        out
    }

    /// Signs what a batch writes, where it leaves the thread at rest or ends something.
    fn seal(&mut self, batch: &mut Batch, before: &BTreeMap<GateId, Kept<Gate>>, env: &Env<'_>) {
        let Some(key) = env.signer else {
            return;
        };
        let gates = before.values().map(|gate| &**gate);
        let ended = gates.filter(|gate| !gate.status.is_pending());
        let last = env.last_seal.clone();
        let turn = self.thread.turn.as_ref();
        let mut prompts = self.prompts.iter().map(|prompt| &**prompt);
        let running = turn.and_then(|turn| prompts.find(|prompt| prompt.id == turn.prompt));
        let seal = audit::thread_seal(&self.thread, &batch.ops, ended, running, last, env.now);
        if let Some(seal) = seal {
            let (seal, hash) = audit::sign_seal(seal, key);
            self.thread.seal = hash;
            let seal = Box::new(seal);
            batch.push_event(&self.thread.id, EventKind::Sealed { seal });
        }
    }

    /// What the thread is doing.
    pub(crate) fn status(&self) -> StatusKind {
        match &self.thread.turn {
            _ if self.live.compacting => StatusKind::Thinking,
            None if self.prompts.is_empty() => StatusKind::Idle,
            None => StatusKind::Queued,
            Some(_) if self.asks_for_more() => StatusKind::BlockedOnDecisionGate,
            Some(turn) => match &turn.phase {
                Phase::Model => StatusKind::Thinking,
                Phase::Tools { calls, .. } => {
                    let blocked = |call: &Call| matches!(call.state, CallState::Blocked { .. });
                    let open = |call: &&Call| call.state != CallState::Ended;
                    let mut open = calls.iter().filter(open).peekable();
                    if open.peek().is_some() && open.all(blocked) {
                        StatusKind::BlockedOnDecisionGate
                    } else {
                        StatusKind::ToolCalling
                    }
                }
            },
        }
    }

    /// Whether it waits to be let use more.
    fn asks_for_more(&self) -> bool {
        let mut gates = self.gates.values();
        gates.any(|gate| more::is_pending(gate))
    }

    /// A prompt, if it has not begun.
    pub(crate) fn waiting(&self, id: &PromptId) -> Option<&Kept<QueuedPrompt>> {
        let mut prompts = self.prompts.iter();
        prompts.find(|prompt| prompt.id == *id && prompt.status == PromptStatus::Waiting)
    }

    fn calls(&mut self) -> &mut [Call] {
        match self.thread.turn.as_mut().map(|turn| &mut turn.phase) {
            Some(Phase::Tools { calls, .. }) => calls,
            _ => &mut [],
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut Call> {
        self.calls().iter_mut().find(|call| call.id == *id)
    }
}

/// The arguments of the calls of an entry.
fn args_of(entry: &Entry) -> BTreeMap<CallId, Value> {
    let EntryKind::Message(message) = &entry.kind else {
        return BTreeMap::new();
    };
    let calls = message.parts.iter().filter_map(|part| match part {
        Part::ToolCall { call_id, args, .. } => Some((call_id.clone(), args.clone())),
        _ => None,
    });
    calls.collect()
}

/// One input being taken in.
struct Step<'a> {
    machine: &'a mut Machine,
    env: &'a Env<'a>,
    out: Output,
}

impl Step<'_> {
    fn take(&mut self, input: Input) {
        match input {
            Input::Restored => {
                self.forget_ended_gates();
                self.shorten_windows();
                self.expire_gates();
            }
            Input::Tick => self.expire_gates(),
            Input::Prompt(prompt) => self.queue(*prompt),
            Input::Withdraw(prompt) => self.withdraw(&prompt),
            Input::Answered(answer) => self.answered(answer),
            Input::Again(told) => self.again(*told),
            Input::Overflow(error) => self.overflowed(error),
            Input::Choose(model) => self.choose(model),
            Input::Compact => self.begin_compaction(CompactionReason::Requested),
            Input::Compacted(outcome) => self.compacted(outcome),
            Input::UndoCompaction { compaction, tokens } => {
                self.undo_compaction(compaction, tokens);
            }
            Input::Limit(limit) => {
                // It was not made.
                if let Some(turn) = &mut self.machine.thread.turn {
                    turn.reserved = Usage::default();
                }
                self.reached(limit, Whose::Session);
            }
            Input::Ended(call, outcome) => self.ended(&call, outcome),
            Input::Ask(call, request) => self.ask(&call, &request),
            Input::Decided(gate) => self.decided(*gate),
            Input::Process(call, process) => {
                if let Some(call) = self.machine.call(&call) {
                    call.processes.push(process);
                }
            }
            Input::Effect(call, effect) => {
                if let Some(call) = self.machine.call(&call) {
                    call.effect = Some(effect);
                }
            }
            Input::Artifact(call, Artifact { name, source }) => {
                // What a turn left behind that is over has nobody to tell.
                if self.machine.call(&call).is_some() {
                    self.tell(EventKind::Artifact { name, source });
                }
            }
            Input::Abort {
                partial,
                clear_queue,
            } => {
                self.abort("abort", &partial);
                if clear_queue {
                    self.clear_queue();
                }
            }
            Input::Steer { prompt, partial } => {
                self.abort("steer", &partial);
                self.queue_first(*prompt);
            }
            Input::Pause => self.set_status(ThreadStatus::Paused),
            Input::Resume => self.set_status(ThreadStatus::Active),
            Input::WithdrawGate(id, reason) => self.withdraw_gates(&reason, |it| it.id == id),
            Input::Change(change) => change.apply(&mut self.machine.thread),
            Input::Ordered(order, what) => {
                self.take(*what);
                self.carried_out(order);
            }
        }
    }

    /// One that is archived stays so until somebody says otherwise.
    fn set_status(&mut self, status: ThreadStatus) {
        let thread = &mut self.machine.thread;
        if thread.status != ThreadStatus::Archived {
            thread.status = status;
        }
    }

    /// Written in the commit that carries it out, so that it is neither lost nor done twice.
    fn carried_out(&mut self, order: PostedOrder) {
        if order.alone {
            self.out.batch.push(Op::CompleteCommand(order.id));
        } else {
            // It stays until all threads have.
            self.machine.thread.last_command = Some(order.id);
        }
    }

    /// Writes an entry behind the leaf.
    fn append(&mut self, kind: EntryKind) -> EntryId {
        let thread = &mut self.machine.thread;
        let mut entry = Entry {
            id: EntryId::new(),
            session: thread.session.clone(),
            thread: thread.id.clone(),
            parent: thread.leaf.take(),
            prompt: thread.turn.as_ref().map(|turn| turn.prompt.clone()),
            kind,
            created_at: self.env.now,
            hash: String::new(),
        };
        thread.tokens = thread.tokens.saturating_add(tokens::of_entry(&entry));
        entry.hash = audit::entry_hash(&entry, &thread.leaf_hash);
        let id = entry.id.clone();
        thread.leaf = Some(id.clone());
        thread.leaf_hash.clone_from(&entry.hash);
        self.out.batch.push(Op::AppendEntry(Arc::new(entry)));
        self.tell(EventKind::MessageEnd { entry: id.clone() });
        id
    }

    fn tell(&mut self, kind: EventKind) {
        self.out.batch.push_event(&self.machine.thread.id, kind);
    }
}

#[cfg(test)]
mod tests;
