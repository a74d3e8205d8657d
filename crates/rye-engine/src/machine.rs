//! The thread state machine: decides what to commit and which effects to perform afterwards.
//!
//! It is pure: an [`Input`] goes in, an [`Output`] comes out, and no clock, store or model is
//! touched. Recovery after a restart needs no special case: [`advance`](Step::advance) compares
//! the stored state with the work that runs in this process, and after a restart none does.

mod advance;
mod calls;
mod compaction;
mod cow_arc;
mod gates;
mod input;
mod limit_gate;
mod queue;
mod session_change;
mod step_context;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_protocol::{
    Batch, Call, CallId, CallState, CompactionReason, Entry, EntryId, EntryKind, EventKind, Gate,
    GateId, Millis, Op, Part, Phase, PromptId, PromptStatus, QueuedPrompt, StatusKind, Thread,
    ThreadStatus, Usage,
};
use serde_json::Value;

use crate::audit;
use crate::tokens;
use limit_gate::LimitScope;

pub(crate) use limit_gate::is_invalid_limit;

pub(crate) use compaction::{CompactionResult, ContextWindows};
pub(crate) use cow_arc::CowArc;
pub(crate) use input::{Input, PostedCommand};
pub(crate) use session_change::SessionChange;
pub use step_context::CallLimits;
pub(crate) use step_context::{ChildUsage, StepContext, ToolLookup, ToolTraits};

/// The stored state of a thread, and what of it runs in this process.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) thread: CowArc<Thread>,
    /// Waiting and running prompts, in queue order.
    pub(crate) prompts: Vec<CowArc<QueuedPrompt>>,
    /// Gates of the running prompt.
    pub(crate) gates: BTreeMap<GateId, CowArc<Gate>>,
    /// Arguments of the current tool calls, from their entry.
    args: CowArc<BTreeMap<CallId, Value>>,
    live: Live,
}

/// Work that runs in this process; empty after a restart.
#[derive(Debug, Clone, Default)]
struct Live {
    model: bool,
    /// A compaction is running.
    compacting: bool,
    calls: BTreeSet<CallId>,
    /// Calls that wait for a gate to close.
    waiting: BTreeSet<(CallId, GateId)>,
}

impl Machine {
    /// Restores a thread from its stored state. `entry` holds the current tool calls.
    pub(crate) fn new(
        thread: Thread,
        prompts: Vec<QueuedPrompt>,
        gates: Vec<Gate>,
        entry: Option<&Entry>,
    ) -> Self {
        Self {
            thread: CowArc::new(thread),
            prompts: prompts.into_iter().map(CowArc::new).collect(),
            gates: gates
                .into_iter()
                .map(|gate| (gate.id.clone(), CowArc::new(gate)))
                .collect(),
            args: CowArc::new(entry.map(args_of).unwrap_or_default()),
            live: Live::default(),
        }
    }

    /// Applies an input and decides what to do next.
    pub(crate) fn handle(&mut self, input: Input, context: &StepContext<'_>) -> Output {
        let before = self.thread.clone();
        let gates = self.gates.clone();
        let mut step = Step {
            machine: self,
            context,
            out: Output::default(),
        };
        step.apply(input);
        step.advance();
        let mut out = step.out;
        audit::fold_events(&mut self.thread, &out.batch.ops);
        if !self.thread.is_same(&before) && self.thread != before {
            self.thread.updated_at = context.now;
            self.seal(&mut out.batch, &gates, context);
            // The thread goes first, so that a reader of the batch sees the new leaf.
            out.batch.ops.insert(0, Op::PutThread(self.thread.share()));
        }
        out
    }

    /// Signs a batch that ends a turn or leaves the thread idle.
    fn seal(
        &mut self,
        batch: &mut Batch,
        before: &BTreeMap<GateId, CowArc<Gate>>,
        context: &StepContext<'_>,
    ) {
        let Some(key) = context.signer else {
            return;
        };
        let gates = before.values().map(|gate| &**gate);
        let ended = gates.filter(|gate| !gate.status.is_pending());
        let last = context.last_seal.clone();
        let turn = self.thread.turn.as_ref();
        let mut prompts = self.prompts.iter().map(|prompt| &**prompt);
        let running = turn.and_then(|turn| prompts.find(|prompt| prompt.id == turn.prompt));
        let seal = audit::thread_seal(&self.thread, &batch.ops, ended, running, last, context.now);
        if let Some(seal) = seal {
            let (seal, hash) = audit::sign_seal(seal, key);
            self.thread.seal = hash;
            let seal = Box::new(seal);
            batch.push_event(&self.thread.id, EventKind::Sealed { seal });
        }
    }

    /// The status to publish.
    pub(crate) fn status(&self) -> StatusKind {
        match &self.thread.turn {
            _ if self.live.compacting => StatusKind::Thinking,
            Some(_) if self.is_waiting_at_limit() => StatusKind::BlockedOnDecisionGate,
            _ => stored_status(&self.thread, !self.prompts.is_empty()),
        }
    }

    /// Whether the thread waits at a limit gate.
    fn is_waiting_at_limit(&self) -> bool {
        let mut gates = self.gates.values();
        gates.any(|gate| limit_gate::is_pending(gate))
    }

    /// A prompt that is still waiting in the queue.
    pub(crate) fn waiting(&self, id: &PromptId) -> Option<&CowArc<QueuedPrompt>> {
        let mut prompts = self.prompts.iter();
        prompts.find(|prompt| prompt.id == *id && prompt.status == PromptStatus::Waiting)
    }

    /// The number of prompts that wait in the queue.
    pub(crate) fn waiting_prompts(&self) -> usize {
        let prompts = self.prompts.iter();
        let waiting = prompts.filter(|prompt| prompt.status == PromptStatus::Waiting);
        waiting.count()
    }

    fn calls(&mut self) -> &mut [Call] {
        match self.thread.turn.as_mut().map(|turn| &mut turn.phase) {
            Some(Phase::Tools { calls, .. }) => calls,
            _ => &mut [],
        }
    }

    /// Whether a call is not over yet.
    pub(crate) fn has_call(&self, id: &CallId) -> bool {
        match self.thread.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Tools { calls, .. }) => {
                let mut open = calls.iter().filter(|call| call.state != CallState::Ended);
                open.any(|call| call.id == *id)
            }
            _ => false,
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut Call> {
        self.calls().iter_mut().find(|call| call.id == *id)
    }
}

/// The status of a thread according to its stored state. `has_prompts`: whether prompts wait or
/// run.
pub(crate) fn stored_status(thread: &Thread, has_prompts: bool) -> StatusKind {
    let Some(turn) = &thread.turn else {
        return if has_prompts {
            StatusKind::Queued
        } else {
            StatusKind::Idle
        };
    };
    let Phase::Tools { calls, .. } = &turn.phase else {
        return StatusKind::Thinking;
    };
    let blocked = |call: &Call| matches!(call.state, CallState::Blocked { .. });
    let open = |call: &&Call| call.state != CallState::Ended;
    let mut open = calls.iter().filter(open).peekable();
    if open.peek().is_some() && open.all(blocked) {
        StatusKind::BlockedOnDecisionGate
    } else {
        StatusKind::ToolCalling
    }
}

/// The arguments of an entry's tool calls.
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

/// What to commit, and which effects to perform after the commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    pub(crate) batch: Batch,
    pub(crate) effects: Vec<Effect>,
    /// The accepted prompt, or the collected prompt it was merged into.
    pub(crate) accepted: Option<PromptId>,
    /// Changes to the session to write in the same commit.
    pub(crate) session: SessionChange,
}

/// Work to start or stop after the commit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    CallModel {
        model: String,
    },
    /// Aborts the current model call, also one for a summary.
    StopModel,
    Compact {
        reason: CompactionReason,
        model: String,
    },
    RunTool {
        call: CallId,
        tool: String,
        args: Value,
    },
    StopTool(CallId),
    /// Tells a tool how its gate closed.
    Reply(CallId, Box<Gate>),
    /// Sends a tick at this time.
    WakeAt(Millis),
}

/// One input being applied.
struct Step<'a> {
    machine: &'a mut Machine,
    context: &'a StepContext<'a>,
    out: Output,
}

impl Step<'_> {
    fn apply(&mut self, input: Input) {
        match input {
            Input::Restored => {
                self.shorten_windows();
                self.expire_gates();
            }
            Input::Tick => self.expire_gates(),
            Input::Prompt(prompt) => self.queue(*prompt),
            Input::WithdrawPrompt(prompt) => self.withdraw(&prompt),
            Input::ModelAnswered(answer) => self.on_model_answer(answer),
            Input::RetryModel(event) => self.on_model_retry(*event),
            Input::ContextOverflow(error) => self.on_context_overflow(error),
            Input::SwitchModel(model) => self.switch_model(model),
            Input::Compact => self.begin_compaction(CompactionReason::Requested),
            Input::CompactionEnded(outcome) => self.on_compaction_ended(outcome),
            Input::UndoCompaction { compaction, tokens } => {
                self.undo_compaction(compaction, tokens);
            }
            Input::LimitReached(limit) => {
                // The call was not made.
                if let Some(turn) = &mut self.machine.thread.turn {
                    turn.reserved = Usage::default();
                }
                self.on_limit(limit, LimitScope::Session);
            }
            Input::ToolEnded(call, outcome) => self.on_tool_ended(&call, outcome),
            Input::RequestDecision(call, request) => self.request_decision(&call, &request),
            Input::GateClosed(gate) => self.on_gate_closed(*gate),
            Input::ProcessStarted(call, process) => {
                if let Some(call) = self.machine.call(&call) {
                    call.processes.push(process);
                }
            }
            Input::DeclareEffect(call, effect) => {
                if let Some(call) = self.machine.call(&call) {
                    call.effect = Some(effect);
                }
            }
            Input::RecordEvent(call, event) => {
                // A call of an ended turn has no session to report to.
                if self.machine.has_call(&call) {
                    self.emit(*event);
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
            Input::ChangeThread(change) => change.apply(&mut self.machine.thread),
            Input::PostedCommand(command, inner) => {
                self.apply(*inner);
                self.complete_command(command);
            }
        }
    }

    /// An archived thread stays archived until it is changed explicitly.
    fn set_status(&mut self, status: ThreadStatus) {
        let thread = &mut self.machine.thread;
        if thread.status != ThreadStatus::Archived {
            thread.status = status;
        }
    }

    /// Completes a posted command in the commit that applies it, so that it runs exactly once.
    fn complete_command(&mut self, command: PostedCommand) {
        if command.is_only_thread {
            self.out.batch.push(Op::CompleteCommand(command.id));
        } else {
            // The command stays until all threads have applied it.
            self.machine.thread.last_command = Some(command.id);
        }
    }

    /// Appends an entry after the leaf.
    fn append(&mut self, kind: EntryKind) -> EntryId {
        let thread = &mut self.machine.thread;
        let mut entry = Entry {
            id: EntryId::new(),
            session: thread.session.clone(),
            thread: thread.id.clone(),
            parent: thread.leaf.take(),
            prompt: thread.turn.as_ref().map(|turn| turn.prompt.clone()),
            kind,
            created_at: self.context.now,
            hash: String::new(),
        };
        thread.tokens = thread.tokens.saturating_add(tokens::estimate_entry(&entry));
        entry.hash = audit::entry_hash(&entry, &thread.leaf_hash);
        let id = entry.id.clone();
        thread.leaf = Some(id.clone());
        thread.leaf_hash.clone_from(&entry.hash);
        self.out.batch.push(Op::AppendEntry(Arc::new(entry)));
        self.emit(EventKind::MessageEnd { entry: id.clone() });
        id
    }

    fn emit(&mut self, kind: EventKind) {
        self.out.batch.push_event(&self.machine.thread.id, kind);
    }
}

#[cfg(test)]
mod tests;
