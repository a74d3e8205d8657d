//! Drives one thread: feeds commands to the state machine, commits its output to the store,
//! then performs the effects.

mod admission;
mod compaction;
mod effects;
mod failover;
mod instrumentation;
mod media;
mod publish;
mod store_backoff;
mod system_prompt;
mod tools;

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use rye_protocol::{
    Batch, CallId, EventKind, Gate, GateId, LimitKind, Millis, Op, ProcessRef, PromptId, QueueMode,
    QueuedPrompt, SessionId, StatusKind, Usage,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Shared;
use crate::machine::{ChildUsage, Input, Machine, PostedCommand, SessionChange, StepContext};
use crate::model::{Delta, ModelAnswer};
use crate::quotas::TurnSlot;
use crate::store::{CommandKind, StoreError};
use crate::tool::{DecisionRequest, ToolError, ToolOutput};
use crate::transcript::Transcript;

pub use compaction::{CompactionOutcome, UndoOutcome};
use store_backoff::{Backoff, retry_until_available};
pub(crate) use tools::ToolRegistry;

/// A command to a thread's runner.
pub(crate) enum ThreadCommand {
    /// A prompt from a caller in this process.
    Prompt {
        prompt: Box<QueuedPrompt>,
        reply: oneshot::Sender<Result<PromptId, StoreError>>,
    },
    /// A prompt that another process posted to the store.
    PostedPrompt(Box<QueuedPrompt>),
    GateClosed(Box<Gate>),
    /// Removes a waiting prompt from the queue and returns it; `None` if it is not waiting.
    WithdrawPrompt {
        prompt: PromptId,
        reply: oneshot::Sender<Result<Option<QueuedPrompt>, StoreError>>,
    },
    Command {
        kind: CommandKind,
        /// The stored command, if it was posted to the store.
        posted: Option<PostedCommand>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Applies an input and replies once it is committed.
    Apply(Box<Input>, oneshot::Sender<Result<(), StoreError>>),
    /// The session was paused or resumed, or a limit was increased.
    Wake,
    /// Replies when all earlier commands are processed.
    Barrier(oneshot::Sender<()>),
    /// Replies when no model call runs, and no tool but those that wait for a decision or a task.
    Settle(oneshot::Sender<()>),
    /// Streamed output of the model call with this generation.
    Delta(u64, Delta),
    ModelAnswered(u64, Result<Box<ModelAnswer>, rye_protocol::ErrorInfo>),
    ModelFailed(u64, crate::model::ModelError),
    /// Status of the model call with this generation.
    ModelStatus(u64, StatusKind),
    /// The role requires another model.
    SwitchModel(u64, String),
    /// The summarising task has finished.
    CompactionEnded(
        u64,
        Result<Box<crate::machine::CompactionResult>, (rye_protocol::ErrorInfo, Usage)>,
    ),
    /// Compacts the history on request, or undoes the last compaction.
    Compact(oneshot::Sender<CompactionOutcome>),
    UndoCompaction(oneshot::Sender<Result<UndoOutcome, StoreError>>),
    LimitReached(LimitKind),
    /// A tool call has finished.
    ToolEnded(CallId, Result<Box<ToolOutput>, ToolError>),
    RequestDecision {
        call: CallId,
        request: Box<DecisionRequest>,
        reply: oneshot::Sender<Box<Gate>>,
    },
    ToolOutput {
        call: CallId,
        text: String,
    },
    ProcessStarted(CallId, ProcessRef),
    DeclareEffect(CallId, rye_protocol::EffectClass, oneshot::Sender<()>),
    /// Records an event of a running call, and replies once it is committed.
    RecordEvent(CallId, Box<EventKind>, oneshot::Sender<()>),
}

/// Runs one thread until its session closes.
pub(crate) struct Runner {
    shared: Arc<Shared>,
    machine: Machine,
    /// The message history, loaded when a model call first needs it.
    transcript: Option<Transcript>,
    commands: mpsc::UnboundedReceiver<ThreadCommand>,
    /// Commands received while the store was unavailable.
    deferred: VecDeque<ThreadCommand>,
    command_tx: mpsc::UnboundedSender<ThreadCommand>,
    model: Option<AbortOnDropHandle<()>>,
    /// Number of the current model call; output of earlier calls is ignored.
    generation: u64,
    /// Text that the current model call has streamed so far.
    partial: String,
    failover: failover::Failover,
    /// The system prompt and its sources, for the current turn.
    system_prompt: Option<Arc<system_prompt::SystemPrompt>>,
    /// Facts about the workspace, once they are collected.
    environment: Option<String>,
    /// Model context of the last call (everything beside the history) and its hash.
    model_context: Option<(rye_protocol::ModelContext, String)>,
    /// Callers that wait for a compaction.
    compaction_waiters: Vec<oneshot::Sender<CompactionOutcome>>,
    /// Cached usable context size per model, in tokens.
    usable_tokens: Mutex<HashMap<String, u64>>,
    /// Running tool calls, with the child session of each task.
    tools: HashMap<CallId, (AbortOnDropHandle<()>, Option<SessionId>)>,
    gate_waiters: HashMap<(CallId, GateId), Vec<oneshot::Sender<Box<Gate>>>>,
    /// Posted prompts that were already accepted.
    accepted_posts: HashSet<PromptId>,
    /// Callers that wait until nothing runs.
    settle_waiters: Vec<oneshot::Sender<()>>,
    /// The right to run the current turn, if the owner has a limit.
    slot: Arc<Mutex<Option<TurnSlot>>>,
    wake_at: Option<Millis>,
    /// Failure to perform a committed effect.
    effect_error: Option<StoreError>,
    status: Arc<Mutex<StatusKind>>,
    timer: instrumentation::TurnTimer,
}

impl Runner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        machine: Machine,
        channel: (
            mpsc::UnboundedSender<ThreadCommand>,
            mpsc::UnboundedReceiver<ThreadCommand>,
        ),
        status: Arc<Mutex<StatusKind>>,
    ) -> Self {
        let timer = instrumentation::TurnTimer::new(Arc::clone(&shared.metrics), &machine.thread);
        Self {
            timer,
            shared,
            machine,
            transcript: None,
            command_tx: channel.0,
            commands: channel.1,
            deferred: VecDeque::new(),
            model: None,
            generation: 0,
            partial: String::new(),
            failover: failover::Failover::default(),
            system_prompt: None,
            environment: None,
            model_context: None,
            compaction_waiters: Vec::new(),
            usable_tokens: Mutex::default(),
            tools: HashMap::new(),
            gate_waiters: HashMap::new(),
            accepted_posts: HashSet::new(),
            settle_waiters: Vec::new(),
            slot: Arc::default(),
            wake_at: None,
            effect_error: None,
            status,
        }
    }

    /// Runs the thread until its session is closed or fails.
    pub(crate) async fn run(mut self) {
        let closed = self.shared.closed.clone();
        let outcome = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            outcome = catch_panic(self.work()) => outcome,
        };
        let error = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => StoreError::SessionFailed {
                session: self.shared.lease.session.clone(),
                reason: self.shared.setup.redactor.redact(&panic).into_owned(),
            },
        };
        // A closed session has no lease any more; failing to write it is no error.
        if !closed.is_cancelled() {
            let thread = Some(&self.machine.thread.id);
            self.shared.fail(thread, &error).await;
        }
    }

    async fn work(&mut self) -> Result<(), StoreError> {
        self.step(Input::Restored).await?;
        loop {
            if let Some(error) = self.effect_error.take() {
                return Err(error);
            }
            // The remaining commands may belong to a session that is already closed.
            if self.shared.closed.is_cancelled() {
                return Ok(());
            }
            let wait = self.wake_at.map(|at| self.shared.clock.now().until(at));
            let wake = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            if !self.settle_waiters.is_empty() && self.is_settled() {
                for waiter in self.settle_waiters.drain(..) {
                    let _ = waiter.send(());
                }
            }
            if let Some(command) = self.deferred.pop_front() {
                self.handle(command).await?;
                continue;
            }
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command).await?,
                    None => return Ok(()),
                },
                () = wake => {
                    self.wake_at = None;
                    self.step(Input::Tick).await?;
                }
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each command")]
    async fn handle(&mut self, command: ThreadCommand) -> Result<(), StoreError> {
        match command {
            ThreadCommand::Prompt { prompt, reply } => self.on_prompt(prompt, reply).await,
            ThreadCommand::PostedPrompt(prompt) => self.on_posted_prompt(prompt).await,
            ThreadCommand::GateClosed(gate) => {
                let waits = self.machine.gates.get(&gate.id);
                if waits.is_some_and(|known| known.status.is_pending()) {
                    self.timer.gate_closed(&gate, self.shared.clock.now());
                }
                self.step(Input::GateClosed(gate)).await.map(drop)
            }
            ThreadCommand::WithdrawPrompt { prompt, reply } => {
                let outcome = self.withdraw(prompt).await;
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            ThreadCommand::Command {
                kind,
                posted,
                reply,
            } => {
                let outcome = self.run_command(kind, posted).await;
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            ThreadCommand::Apply(input, reply) => {
                let outcome = self.try_step(*input).await.map(drop);
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            ThreadCommand::Barrier(reply) => {
                let _ = reply.send(());
                Ok(())
            }
            ThreadCommand::Settle(reply) => {
                self.settle_waiters.push(reply);
                Ok(())
            }
            ThreadCommand::Wake => self.step(Input::Tick).await.map(drop),
            ThreadCommand::Delta(generation, delta) => {
                self.on_delta(generation, delta);
                Ok(())
            }
            ThreadCommand::ModelAnswered(generation, _) if generation != self.generation => Ok(()),
            ThreadCommand::ModelAnswered(_, answer) => {
                let outcome = if answer.is_ok() { "success" } else { "error" };
                self.timer.model_ended(outcome);
                self.model = None;
                self.partial.clear();
                self.failover = failover::Failover::default();
                let answer = self.dedupe_call_ids(answer).await?;
                self.step(Input::ModelAnswered(answer)).await.map(drop)
            }
            ThreadCommand::ModelFailed(generation, _) if generation != self.generation => Ok(()),
            ThreadCommand::ModelFailed(_, error) => {
                self.timer.model_ended("error");
                self.on_model_failed(error).await
            }
            ThreadCommand::ModelStatus(generation, status) => {
                if generation == self.generation && self.model.is_some() {
                    self.publish_status(status);
                }
                Ok(())
            }
            ThreadCommand::SwitchModel(generation, _) if generation != self.generation => Ok(()),
            ThreadCommand::SwitchModel(_, model) => {
                self.step(Input::SwitchModel(model)).await.map(drop)
            }
            ThreadCommand::CompactionEnded(generation, _) if generation != self.generation => {
                Ok(())
            }
            ThreadCommand::CompactionEnded(_, outcome) => self.on_compaction_ended(outcome).await,
            ThreadCommand::Compact(reply) => {
                self.compaction_waiters.push(reply);
                self.step(Input::Compact).await.map(drop)
            }
            ThreadCommand::UndoCompaction(reply) => {
                let outcome = self.undo_compaction().await;
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            ThreadCommand::LimitReached(limit) => {
                self.step(Input::LimitReached(limit)).await.map(drop)
            }
            ThreadCommand::ToolEnded(call, outcome) => {
                self.tools.remove(&call);
                self.step(Input::ToolEnded(call, outcome)).await.map(drop)
            }
            ThreadCommand::RequestDecision {
                call,
                request,
                reply,
            } => {
                self.wait_for(&call, &request.resume_key, reply);
                self.step(Input::RequestDecision(call, request))
                    .await
                    .map(drop)
            }
            ThreadCommand::ToolOutput { call, text } => {
                self.publish_ephemeral(EventKind::ToolOutput { call, text });
                Ok(())
            }
            ThreadCommand::ProcessStarted(call, process) => self
                .step(Input::ProcessStarted(call, process))
                .await
                .map(drop),
            ThreadCommand::DeclareEffect(call, effect, reply) => {
                // If the commit fails, dropping `reply` tells the caller.
                self.step(Input::DeclareEffect(call, effect)).await?;
                let _ = reply.send(());
                Ok(())
            }
            ThreadCommand::RecordEvent(call, event, reply) => {
                // Dropping `reply` tells the caller that it failed, or that the call has ended.
                if self.machine.has_call(&call) {
                    self.step(Input::RecordEvent(call, event)).await?;
                    let _ = reply.send(());
                }
                Ok(())
            }
        }
    }

    /// Whether nothing runs that will be committed by itself.
    fn is_settled(&self) -> bool {
        let waits = |call: &CallId| self.gate_waiters.keys().any(|(waiting, _)| waiting == call);
        let mut tools = self.tools.iter();
        // A call that waits for the right to run has not begun.
        let has_model = self.model.is_some() && *self.status.lock() != StatusKind::Queued;
        !has_model && tools.all(|(call, (_, task))| task.is_some() || waits(call))
    }

    async fn on_prompt(
        &mut self,
        prompt: Box<QueuedPrompt>,
        reply: oneshot::Sender<Result<PromptId, StoreError>>,
    ) -> Result<(), StoreError> {
        let id = prompt.id.clone();
        let input = self.prompt_input(prompt);
        let outcome = self.try_step(input).await;
        let answer = outcome.clone().map(|accepted| accepted.unwrap_or(id));
        // The caller may have gone away; the prompt is committed all the same.
        let _ = reply.send(answer);
        match outcome {
            Err(StoreError::Conflict { .. }) => Ok(()),
            outcome => unless_unavailable(outcome),
        }
    }

    /// The same posted prompt may be delivered more than once.
    async fn on_posted_prompt(&mut self, prompt: Box<QueuedPrompt>) -> Result<(), StoreError> {
        if self.accepted_posts.insert(prompt.id.clone()) {
            let input = self.prompt_input(prompt);
            self.step(input).await?;
        }
        Ok(())
    }

    /// Removes a waiting prompt from the queue and returns it.
    async fn withdraw(&mut self, prompt: PromptId) -> Result<Option<QueuedPrompt>, StoreError> {
        let waiting = self
            .machine
            .waiting(&prompt)
            .map(|it| QueuedPrompt::clone(it));
        if waiting.is_some() {
            self.try_step(Input::WithdrawPrompt(prompt)).await?;
        }
        Ok(waiting)
    }

    /// Runs a command, each posted command once.
    async fn run_command(
        &mut self,
        kind: CommandKind,
        posted: Option<PostedCommand>,
    ) -> Result<(), StoreError> {
        let last = self.machine.thread.last_command.as_ref();
        if posted.as_ref().is_some_and(|it| last == Some(&it.id)) {
            return Ok(());
        }
        let input = match kind {
            CommandKind::Abort => Input::Abort {
                partial: self.partial.clone(),
                clear_queue: true,
            },
            CommandKind::Pause => Input::Pause,
            CommandKind::Resume => Input::Resume,
            CommandKind::WithdrawPrompt { prompt } => Input::WithdrawPrompt(prompt),
            CommandKind::WithdrawGate { gate, reason } => Input::WithdrawGate(gate, reason),
            // The session applies it.
            CommandKind::SetPermissionMode { .. } => return Ok(()),
        };
        let input = match posted {
            Some(posted) => Input::PostedCommand(posted, Box::new(input)),
            None => input,
        };
        self.try_step(input).await.map(drop)
    }

    /// The state machine input for a prompt.
    fn prompt_input(&self, prompt: Box<QueuedPrompt>) -> Input {
        let busy = self.machine.thread.turn.is_some();
        if busy && prompt.mode == QueueMode::Steer {
            let partial = self.partial.clone();
            Input::Steer { prompt, partial }
        } else {
            Input::Prompt(prompt)
        }
    }

    /// Processes an input: decide, commit, then perform the effects.
    async fn step(&mut self, input: Input) -> Result<Option<PromptId>, StoreError> {
        self.step_with(input, false).await
    }

    /// Like [`step`](Self::step), for a caller that waits for the result: gives up soon if the
    /// store is unavailable, leaving the thread unchanged.
    async fn try_step(&mut self, input: Input) -> Result<Option<PromptId>, StoreError> {
        self.step_with(input, true).await
    }

    async fn step_with(
        &mut self,
        input: Input,
        caller_waits: bool,
    ) -> Result<Option<PromptId>, StoreError> {
        // Needed only if a gate known here closes concurrently.
        let again = (!self.machine.gates.is_empty()).then(|| input.clone());
        let mut next = self.machine.clone();
        let mut output = next.handle(input, &self.step_context());
        let mut backoff = Backoff::default();
        let (committed, seal) = loop {
            match self
                .commit_with_session(&output.batch, &output.session)
                .await
            {
                Ok(written) => break written,
                // Another process closed the gate first: apply its decision, then try again.
                Err(StoreError::GateClosed(gate)) => {
                    let store = &self.shared.store;
                    let ended = retry_until_available(|| store.gate(&gate)).await?;
                    let ended = ended.zip(again).ok_or(StoreError::GateClosed(gate))?;
                    Box::pin(self.step(Input::GateClosed(Box::new(ended.0)))).await?;
                    return Box::pin(self.step_with(ended.1, caller_waits)).await;
                }
                Err(error @ StoreError::Unavailable(_)) if !(caller_waits && backoff.is_long()) => {
                    self.pause(&error, &mut backoff).await;
                }
                Err(error) => return Err(error),
            }
        };
        self.machine = next;
        output.batch.ops.splice(0..0, seal);
        self.publish(output.batch, committed);
        if output.session.increase.is_some() {
            // Continue with the increased limit.
            let _ = self.command_tx.send(ThreadCommand::Wake);
        }
        for effect in output.effects {
            if let Err(error) = self.perform(effect).await {
                // The input is committed even if an effect fails.
                self.effect_error.get_or_insert(error);
                break;
            }
        }
        Ok(output.accepted)
    }

    /// Commits a batch, together with the changes to the session that it requires. Also returns the
    /// seal of the changes, which is the first event.
    async fn commit_with_session(
        &self,
        batch: &Batch,
        change: &SessionChange,
    ) -> Result<(Committed, Option<Op>), StoreError> {
        let mut batch = batch.clone();
        if *change == SessionChange::default() {
            return Ok((self.commit(batch).await?, None));
        }
        let shared = &self.shared;
        let _alone = shared.writing.lock().await;
        let Some(data) = change.apply(&shared.data(), shared.clock.now()) else {
            return Ok((self.commit(batch).await?, None));
        };
        let data = Arc::new(data);
        batch.push(Op::PutSession(Arc::clone(&data)));
        let seal = shared.seal_rows(&batch);
        batch.ops.splice(0..0, seal.clone());
        let committed = self.commit(batch).await?;
        shared.budget.set_limits(data.limits);
        shared.set_data(data);
        Ok((committed, seal))
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let shared = &self.shared;
        let at = shared.clock.now();
        let last = if batch.is_empty() {
            0
        } else {
            shared.store.commit(&shared.lease, batch).await?
        };
        Ok(Committed { last, at })
    }

    fn step_context(&self) -> StepContext<'_> {
        StepContext {
            now: self.shared.clock.now(),
            calls: self.shared.setup.calls,
            collect_window: self.shared.collect_window,
            model: &self.shared.model,
            partial: &self.partial,
            paused: self.shared.is_paused(),
            reserve: self.reserve(),
            until: self.shared.budget.until(),
            limits: self.shared.budget.limits(),
            // A task ends at the limit; its parent session asks instead.
            prompt_on_limit: self.shared.setup.prompt_on_limit && !self.shared.budget.is_child(),
            signer: self.shared.key.as_deref(),
            last_seal: self.shared.last_seal(),
            model_context: self.model_context.as_ref(),
            compaction: &self.shared.compaction,
            windows: self,
            restored_files: self.shared.data().restored_files.clone(),
            // A task's changes are reviewed with those of its parent.
            reviews_changes: self.shared.sandbox.review().is_some()
                && !self.shared.budget.is_child(),
            tools: &*self.shared.tools,
            children: self,
        }
    }

    /// Minimum usage of the next model call: one turn and its input tokens.
    fn reserve(&self) -> Usage {
        Usage {
            turns: 1,
            input_tokens: self.transcript.as_ref().map_or(0, Transcript::tokens),
            ..Usage::default()
        }
    }
}

/// What identifies the events of a committed batch.
#[derive(Clone, Copy)]
struct Committed {
    /// Number of the last event.
    last: u64,
    /// When it was sent to the store, which is the time of its events.
    at: Millis,
}

/// An unavailable store leaves the thread unchanged, and the caller already has the error.
fn unless_unavailable<T>(outcome: Result<T, StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Unavailable(_)) => Ok(()),
        other => other.map(drop),
    }
}

/// Runs a future and returns the panic message if it panics.
async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, String> {
    // The future is dropped after a panic, so its broken state is never observed.
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.map_err(|payload| panic_message(&*payload))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panicked without a message").to_owned()
}

impl ChildUsage for Runner {
    fn used(&self, call: &CallId) -> Usage {
        self.shared.budget.used_by(&self.machine.thread.id, call)
    }
}
