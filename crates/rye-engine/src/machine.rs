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
mod failover;
mod gates;
mod kept;
mod more;
mod queue;
mod result;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lillux::keys::SigningKey;
use rye_protocol::{
    Batch, Call, CallId, CallState, Compacting, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo,
    EventKind, Gate, GateId, ItemStatus, Limits, Message, Millis, Op, OrderId, Part, Phase,
    Prompted, QueueItem, QueueItemId, Role, StatusKind, Thread, ThreadStatus, Turn, TurnEnd, Usage,
};
use serde_json::{Value, json};

use crate::compaction::{CONTINUE, Settings};
use crate::engine::ThreadChange;
use crate::model::ModelAnswer;
use crate::proof;
use crate::tokens;
use crate::tool::{DecisionRequest, Effect as ToolEffect, ToolError, ToolOutput};
use continuation::Continuation;
use drive::MOST_ROUNDS;
use more::Whose;

pub(crate) use more::{Raise, is_no_amount};

pub(crate) use compaction::{Compacted, Windows};
pub(crate) use kept::Kept;

/// A thread, as it was written down, and what of it runs in this process.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) thread: Kept<Thread>,
    /// What waits or runs, in order.
    pub(crate) items: Vec<Kept<QueueItem>>,
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

/// What a machine must know of the world.
pub(crate) struct Env<'a> {
    pub(crate) now: Millis,
    /// How long prompts are collected.
    pub(crate) collect: Duration,
    /// The model of a thread that names none.
    pub(crate) model: &'a str,
    /// Whether the session begins nothing more.
    pub(crate) paused: bool,
    /// What the next call of the model uses up at least.
    pub(crate) reserve: Usage,
    /// When the session's time is up.
    pub(crate) until: Option<Millis>,
    /// How much the session may use up.
    pub(crate) limits: Limits,
    /// Whether a person is asked for more when a limit is reached.
    pub(crate) asks_for_more: bool,
    /// Who signs histories.
    pub(crate) signer: Option<&'a SigningKey>,
    /// The hash of the session's last seal.
    pub(crate) last_seal: Option<String>,
    /// What the model was told beside the history, and the hash of that.
    pub(crate) prompted: Option<&'a (Prompted, String)>,
    /// When and how histories are summed up.
    pub(crate) compaction: &'a Settings,
    pub(crate) windows: &'a dyn Windows,
    pub(crate) tools: &'a dyn Facts,
    pub(crate) children: &'a dyn Children,
}

/// What a machine must know of tools.
pub(crate) trait Facts {
    /// None if there is no such tool.
    fn of(&self, tool: &str) -> Option<Fact>;
}

/// What a machine must know of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) effect: ToolEffect,
    /// Whether it runs alone.
    pub(crate) exclusive: bool,
    /// Whether its call is a child session.
    pub(crate) is_task: bool,
}

/// What a machine must know of the sessions below its own.
pub(crate) trait Children {
    /// What the child of a call has used up.
    fn used(&self, call: &CallId) -> Usage;
}

/// What happens to a thread.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// Nothing: go on from what is written down.
    Restored,
    /// Somebody asks something.
    Prompt(Box<QueueItem>),
    /// A prompt that waits is not to be asked after all.
    Withdraw(QueueItemId),
    /// The model has answered.
    Answered(Result<Box<ModelAnswer>, ErrorInfo>),
    /// The model has not answered, and is called again, or another one is: what is told.
    Again(Box<EventKind>),
    /// The model has said that the context is too long.
    Overflow(ErrorInfo),
    /// The role of the prompt wants another model.
    Choose(String),
    /// Somebody wants the history summed up.
    Compact,
    /// It was, or could not be.
    Compacted(Result<Box<Compacted>, (ErrorInfo, Usage)>),
    /// A sum does not stand any more; the context has so many tokens without it.
    UndoCompaction {
        compaction: EntryId,
        tokens: u64,
    },
    /// A limit was reached before the model could be called.
    Limit(&'static str),
    /// A tool has ended.
    Ended(CallId, Result<Box<ToolOutput>, ToolError>),
    /// A tool asks a person.
    Ask(CallId, Box<DecisionRequest>),
    /// A gate has another status now.
    Decided(Box<Gate>),
    /// A tool has started a process.
    Process(CallId, rye_protocol::ProcessRef),
    /// What may be done with a call if its host dies.
    Effect(CallId, ToolEffect),
    /// A tool has made something to keep.
    Artifact(CallId, Artifact),
    /// Time has passed.
    Tick,
    /// End what runs. `partial` is what the model has said so far.
    Abort {
        partial: String,
        clear_queue: bool,
    },
    /// A prompt takes the place of what runs.
    Steer {
        item: Box<QueueItem>,
        partial: String,
    },
    Pause,
    Resume,
    /// A gate is not to be decided after all: which, and why.
    WithdrawGate(GateId, String),
    /// The thread is to be otherwise from now on.
    Change(ThreadChange),
    /// One of these, that was ordered by somebody elsewhere.
    Ordered(PostedOrder, Box<Input>),
}

/// Something that a tool has made.
#[derive(Debug, Clone)]
pub(crate) struct Artifact {
    pub(crate) name: String,
    /// Where the blob store has it.
    pub(crate) source: String,
}

/// An order that stands in the record until it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostedOrder {
    pub(crate) id: OrderId,
    /// Whether it is for this thread alone.
    pub(crate) alone: bool,
}

/// What is to be written, and what is to be done once it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    pub(crate) batch: Batch,
    pub(crate) effects: Vec<Effect>,
    /// The prompt that was taken in, or that it was added to.
    pub(crate) accepted: Option<QueueItemId>,
    /// A limit of the session that is to be higher, written with all else.
    pub(crate) raise: Option<Raise>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    CallModel {
        model: String,
    },
    /// Ends what a model is asked, whatever for.
    StopModel,
    Compact {
        why: Compacting,
        model: String,
    },
    RunTool {
        call: CallId,
        tool: String,
        args: Value,
    },
    StopTool(CallId),
    /// Tell a tool how its gate ended.
    Reply(CallId, Box<Gate>),
    /// Look again at this moment.
    WakeAt(Millis),
}

impl Machine {
    /// A thread as it was written down. `entry` is the one whose calls are being carried out.
    pub(crate) fn new(
        thread: Thread,
        items: Vec<QueueItem>,
        gates: Vec<Gate>,
        entry: Option<&Entry>,
    ) -> Self {
        Self {
            thread: Kept::new(thread),
            items: items.into_iter().map(Kept::new).collect(),
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
        let mut step = Step {
            machine: self,
            env,
            out: Output::default(),
        };
        step.take(input);
        step.drive();
        let mut out = step.out;
        if !self.thread.is(&before) && self.thread != before {
            self.thread.updated_at = env.now;
            // The thread goes first: whoever reads the batch sees where it leads.
            out.batch.ops.insert(0, Op::PutThread(self.thread.share()));
        }
        out
    }

    /// What the thread is doing.
    pub(crate) fn status(&self) -> StatusKind {
        match &self.thread.turn {
            _ if self.live.compacting => StatusKind::Thinking,
            None if self.items.is_empty() => StatusKind::Idle,
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
    pub(crate) fn waiting(&self, id: &QueueItemId) -> Option<&Kept<QueueItem>> {
        let mut items = self.items.iter();
        items.find(|item| item.id == *id && item.status == ItemStatus::Waiting)
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
            Input::Prompt(item) => self.queue(*item),
            Input::Withdraw(item) => self.withdraw(&item),
            Input::Answered(answer) => self.answered(answer),
            Input::Again(told) => self.again(*told),
            Input::Overflow(error) => self.overflowed(error),
            Input::Choose(model) => self.choose(model),
            Input::Compact => self.begin_compaction(Compacting::Asked),
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
            Input::Steer { item, partial } => {
                self.abort("steer", &partial);
                self.queue_first(*item);
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
            self.out.batch.push(Op::EndOrder(order.id));
        } else {
            // It stays until all threads have.
            self.machine.thread.last_order = Some(order.id);
        }
    }

    /// The model's answer, or why there is none.
    fn answered(&mut self, answer: Result<Box<ModelAnswer>, ErrorInfo>) {
        self.machine.live.model = false;
        let Some(turn) = &mut self.machine.thread.turn else {
            return;
        };
        if turn.phase != Phase::Model {
            return;
        }
        turn.round += 1;
        turn.reserved = Usage::default();
        let model = turn.model.clone();
        let answer = match answer {
            Ok(answer) => *answer,
            Err(error) => {
                // What it cost nobody tells; that it was called is known.
                self.use_up(Usage {
                    turns: 1,
                    ..Usage::default()
                });
                return self.fail(error, TurnEnd::Error);
            }
        };
        let mut message = Message::of(Role::Assistant, answer.parts);
        message.model = Some(model);
        message.stop_reason = answer.stop_reason;
        let calls: Vec<_> = message.parts.iter().filter_map(requested).collect();
        let wrong = if calls.is_empty() {
            self.result_of(&mut message)
        } else {
            None
        };
        let entry = self.append(EntryKind::Message(message));
        if answer.usage.input_tokens > 0 {
            self.machine.thread.tokens = answer.usage.tokens();
        }
        self.tell_prompt();
        self.use_up(answer.usage);
        self.tell(EventKind::Usage {
            usage: answer.usage,
        });
        if let Some(wrong) = wrong {
            return self.no_result(&wrong);
        }
        if calls.is_empty() {
            return self.finish(ItemStatus::Done, TurnEnd::EndTurn);
        }
        let (calls, args): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let ids = calls.iter().map(|call: &Call| call.id.clone());
        self.machine.args = Kept::new(ids.zip(args).collect());
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.phase = Phase::Tools { entry, calls };
        }
    }

    /// Writes down what the model was told beside the history, where that is news.
    fn tell_prompt(&mut self) {
        const PROMPTED: &str = "prompted";
        let Some((prompted, hash)) = self.env.prompted else {
            return;
        };
        let metadata = &mut self.machine.thread.metadata;
        if metadata.get(PROMPTED).and_then(Value::as_str) != Some(hash) {
            metadata.insert(PROMPTED.to_owned(), json!(hash));
            let prompted = Box::new(prompted.clone());
            self.tell(EventKind::Prompted { prompted });
        }
    }

    /// Counts what was used up, for the prompt and for the session.
    fn use_up(&mut self, usage: Usage) {
        if usage.is_zero() {
            return;
        }
        if let Some(turn) = &mut self.machine.thread.turn {
            turn.used = turn.used.plus(usage);
        }
        self.out.batch.push(Op::AddUsage(usage));
    }

    /// A limit ends the turn, wherever it is.
    fn limit(&mut self, limit: &str) {
        let Some(turn) = &self.machine.thread.turn else {
            return;
        };
        let phase = turn.phase.clone();
        self.cancel_compaction("limit");
        match phase {
            Phase::Model => self.stop_model(),
            Phase::Tools { calls, .. } => self.stop_calls(&calls, "limit"),
        }
        self.withdraw_gates("limit", |_| true);
        let mut message = format!("the limit of {limit} is reached");
        if limit == "turns" && self.is_endless() {
            let _ = write!(
                message,
                ": the model was called {MOST_ROUNDS} times for one prompt, and it sets no \
                 limit of its own. What was done is kept: ask it to go on, or set a limit"
            );
        }
        self.fail(ErrorInfo::new(ErrorCode::Limit, message), TurnEnd::Limit);
    }

    fn stop_model(&mut self) {
        self.out.effects.push(Effect::StopModel);
        self.machine.live.model = false;
    }

    fn stop_calls(&mut self, calls: &[Call], reason: &str) {
        for call in calls.iter().filter(|call| call.state != CallState::Ended) {
            self.out.effects.push(Effect::StopTool(call.id.clone()));
            self.abort_call(call, reason);
        }
    }

    /// An error that says where it was.
    fn placed(&self, mut error: ErrorInfo) -> ErrorInfo {
        let thread = &self.machine.thread;
        let ids = &mut error.ids;
        ids.session = Some(thread.session.clone());
        ids.thread = Some(thread.id.clone());
        ids.item = thread.turn.as_ref().map(|turn| turn.item.clone());
        error
    }

    /// Ends the turn with what went wrong; the next prompt may begin.
    fn fail(&mut self, error: ErrorInfo, reason: TurnEnd) {
        let error = self.placed(error);
        let part = Part::Error {
            error: error.clone(),
        };
        self.append(EntryKind::Message(Message::of(Role::Assistant, vec![part])));
        self.tell(EventKind::Error { error });
        self.finish(ItemStatus::Failed, reason);
    }

    /// Ends what runs. What was done stays in the history.
    fn abort(&mut self, reason: &str, partial: &str) {
        self.cancel_compaction(reason);
        let Some(turn) = self.machine.thread.turn.clone() else {
            return;
        };
        match turn.phase {
            Phase::Model => {
                if !partial.is_empty() {
                    let mut message = Message::text(Role::Assistant, partial);
                    message.model = Some(turn.model);
                    message.metadata.insert("aborted".into(), json!(reason));
                    self.append(EntryKind::Message(message));
                }
                self.stop_model();
            }
            Phase::Tools { calls, .. } => self.stop_calls(&calls, reason),
        }
        self.withdraw_gates(reason, |_| true);
        self.finish(ItemStatus::Aborted, TurnEnd::Abort);
    }

    /// The turn is over.
    fn finish(&mut self, status: ItemStatus, reason: TurnEnd) {
        let Some(turn) = self.machine.thread.turn.take() else {
            return;
        };
        // A call of the model that was cut off was paid for.
        if !turn.reserved.is_zero() {
            self.out.batch.push(Op::AddUsage(turn.reserved));
        }
        self.withdraw_gates("ended", |_| true);
        self.machine.gates.clear();
        if !self.machine.args.is_empty() {
            self.machine.args = Kept::new(BTreeMap::new());
        }
        self.machine.live = Live::default();
        let mut begins = None;
        let mut items = self.machine.items.iter();
        if let Some(at) = items.position(|item| item.id == turn.item) {
            let mut item = self.machine.items.remove(at);
            item.status = status;
            if status == ItemStatus::Done && !turn.unchecked && self.is_full(&turn.model) {
                begins = Some(Continuation::of(&item, &turn));
            }
            self.out.batch.push(Op::PutItem(item.share()));
        }
        let item = turn.item;
        self.tell(EventKind::TurnEnd { item, reason });
        self.seal();
        if let Some(continuation) = begins {
            continuation.keep(&mut self.machine.thread);
            self.begin_compaction(Compacting::Full);
        }
    }

    /// Signs the history as it is.
    fn seal(&mut self) {
        let thread = &mut self.machine.thread;
        let Some(key) = self.env.signer else {
            return;
        };
        let last = self.env.last_seal.clone();
        let Some(seal) = proof::unsigned_seal(thread, last, self.env.now) else {
            return;
        };
        let (seal, hash) = proof::sign_seal(seal, key);
        thread.seal = hash;
        let seal = Box::new(seal);
        self.tell(EventKind::Sealed { seal });
    }

    /// Writes an entry behind the leaf.
    fn append(&mut self, kind: EntryKind) -> EntryId {
        let thread = &mut self.machine.thread;
        let mut entry = Entry {
            id: EntryId::new(),
            session: thread.session.clone(),
            thread: thread.id.clone(),
            parent: thread.leaf.take(),
            item: thread.turn.as_ref().map(|turn| turn.item.clone()),
            kind,
            created_at: self.env.now,
            hash: String::new(),
        };
        thread.tokens = thread.tokens.saturating_add(tokens::of_entry(&entry));
        entry.hash = proof::entry_hash(&entry, &thread.leaf_hash);
        let id = entry.id.clone();
        thread.leaf = Some(id.clone());
        thread.leaf_hash.clone_from(&entry.hash);
        self.out.batch.push(Op::AppendEntry(Arc::new(entry)));
        self.tell(EventKind::MessageEnd { entry: id.clone() });
        id
    }

    fn tell(&mut self, kind: EventKind) {
        self.out.batch.tell(&self.machine.thread.id, kind);
    }
}

/// A call of an assistant's message, with its arguments.
fn requested(part: &Part) -> Option<(Call, Value)> {
    let Part::ToolCall {
        call_id,
        tool,
        args,
    } = part
    else {
        return None;
    };
    let call = Call {
        id: call_id.clone(),
        tool: tool.clone(),
        state: CallState::Requested,
        processes: Vec::new(),
        effect: None,
    };
    Some((call, args.clone()))
}

/// A turn for a prompt.
fn turn(item: &QueueItem, thread: &Thread, default: &str) -> Turn {
    let model = item.model.clone().or_else(|| thread.model.clone());
    Turn {
        item: item.id.clone(),
        model: model.unwrap_or_else(|| default.to_owned()),
        round: 0,
        phase: Phase::Model,
        reserved: Usage::default(),
        used: Usage::default(),
        unchecked: item.metadata.contains_key(CONTINUE),
        overflowed: false,
        retried: false,
    }
}

#[cfg(test)]
mod tests;
