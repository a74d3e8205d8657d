//! What moves a thread: it takes in what happens, writes down what the machine says, and
//! only then does it.

mod compaction;
mod effects;
mod failover;
mod guidance;
mod media;
mod meter;
mod patience;
mod telling;
mod tools;
mod unharmed;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use rye_protocol::{
    Batch, CallId, EventKind, Gate, GateId, Millis, Op, ProcessRef, PromptId, QueueMode,
    QueuedPrompt, SessionId, StatusKind, Usage,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Shared;
use crate::machine::{Artifact, Children, Env, Input, Machine, PostedOrder, Raise};
use crate::model::{Delta, ModelAnswer};
use crate::store::{CommandKind, StoreError};
use crate::tool::{DecisionRequest, ToolError, ToolOutput};
use crate::transcript::Transcript;

pub use compaction::Compaction;
pub(crate) use guidance::ROLE;
use patience::{Pauses, patiently};
pub(crate) use tools::{LONGEST, Toolbox};
use unharmed::unharmed;

/// What is said to a thread.
pub(crate) enum Mail {
    /// From whoever has the session here.
    Prompt {
        prompt: Box<QueuedPrompt>,
        reply: oneshot::Sender<Result<PromptId, StoreError>>,
    },
    /// From whoever posted it.
    Posted(Box<QueuedPrompt>),
    Decided(Box<Gate>),
    /// A prompt that waits is not to be asked after all. Gives it back, if it still waited.
    Withdraw {
        prompt: PromptId,
        reply: oneshot::Sender<Result<Option<QueuedPrompt>, StoreError>>,
    },
    CommandKind {
        order: CommandKind,
        /// As it stands in the record, where it was posted.
        posted: Option<PostedOrder>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Something that is to be written.
    Do(Box<Input>, oneshot::Sender<Result<(), StoreError>>),
    /// The session's pause began or ended.
    Look,
    /// Whether all before it was read.
    Read(oneshot::Sender<()>),
    /// From the model's task.
    Delta(u64, Delta),
    Answered(u64, Result<Box<ModelAnswer>, rye_protocol::ErrorInfo>),
    Failed(u64, crate::model::ModelError),
    /// The role wants another model.
    Choose(u64, String),
    /// From whoever sums up.
    Compacted(
        u64,
        Result<Box<crate::machine::Compacted>, (rye_protocol::ErrorInfo, Usage)>,
    ),
    /// Somebody wants the history summed up, or a sum taken back.
    Compact(oneshot::Sender<Compaction>),
    UndoCompaction(oneshot::Sender<Result<Option<rye_protocol::EntryId>, StoreError>>),
    Limit(&'static str),
    /// From a tool's task.
    Ended(CallId, Result<Box<ToolOutput>, ToolError>),
    Ask {
        call: CallId,
        request: Box<DecisionRequest>,
        reply: oneshot::Sender<Box<Gate>>,
    },
    Output {
        call: CallId,
        text: String,
    },
    Process(CallId, ProcessRef),
    Effect(CallId, rye_protocol::Effect, oneshot::Sender<()>),
    Artifact(CallId, Artifact, oneshot::Sender<()>),
}

/// A thread that is being moved.
pub(crate) struct Runner {
    shared: Arc<Shared>,
    machine: Machine,
    /// Its history, once a model needs it.
    transcript: Option<Transcript>,
    mail: mpsc::UnboundedReceiver<Mail>,
    /// What came while nothing could be written.
    later: VecDeque<Mail>,
    own: mpsc::UnboundedSender<Mail>,
    model: Option<AbortOnDropHandle<()>>,
    /// Which call of the model is under way: what an earlier one says counts no more.
    generation: u64,
    /// What the model has said so far.
    partial: String,
    failover: failover::Failover,
    /// What the model is told before anything is said.
    guidance: Option<Arc<guidance::Guidance>>,
    /// What it is told beside the history, and the hash of that.
    prompted: Option<(rye_protocol::ModelContext, String)>,
    /// Who waits for the history to be summed up.
    asked: Vec<oneshot::Sender<Compaction>>,
    /// How many tokens models can use, by their names.
    windows: Mutex<HashMap<String, u64>>,
    /// Calls under way, and the sessions that some of them are.
    tools: HashMap<CallId, (AbortOnDropHandle<()>, Option<SessionId>)>,
    waiting: HashMap<(CallId, GateId), Vec<oneshot::Sender<Box<Gate>>>>,
    /// Prompts of others that were taken in.
    posted: HashSet<PromptId>,
    wake_at: Option<Millis>,
    /// Why what was written down could not be done.
    failed: Option<StoreError>,
    status: Arc<Mutex<StatusKind>>,
    meter: meter::Meter,
}

impl Runner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        machine: Machine,
        mail: (mpsc::UnboundedSender<Mail>, mpsc::UnboundedReceiver<Mail>),
        status: Arc<Mutex<StatusKind>>,
    ) -> Self {
        let meter = meter::Meter::new(Arc::clone(&shared.metrics), &machine.thread);
        Self {
            meter,
            shared,
            machine,
            transcript: None,
            own: mail.0,
            mail: mail.1,
            later: VecDeque::new(),
            model: None,
            generation: 0,
            partial: String::new(),
            failover: failover::Failover::default(),
            guidance: None,
            prompted: None,
            asked: Vec::new(),
            windows: Mutex::default(),
            tools: HashMap::new(),
            waiting: HashMap::new(),
            posted: HashSet::new(),
            wake_at: None,
            failed: None,
            status,
        }
    }

    /// Moves the thread until its session is closed or lost.
    pub(crate) async fn run(mut self) {
        let closed = self.shared.closed.clone();
        let outcome = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            outcome = unharmed(self.work()) => outcome,
        };
        let error = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(why) => StoreError::SessionFailed(self.shared.redactor.redact(&why).into_owned()),
        };
        // What is closed here has no lease any more, which is no loss.
        if !closed.is_cancelled() {
            let thread = Some(&self.machine.thread.id);
            self.shared.break_down(thread, &error).await;
        }
    }

    async fn work(&mut self) -> Result<(), StoreError> {
        self.step(Input::Restored).await?;
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            // What comes after that may be only its end: a task whose session is closed too.
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
            if let Some(mail) = self.later.pop_front() {
                self.take(mail).await?;
                continue;
            }
            tokio::select! {
                biased;
                mail = self.mail.recv() => match mail {
                    Some(mail) => self.take(mail).await?,
                    None => return Ok(()),
                },
                () = wake => {
                    self.wake_at = None;
                    self.step(Input::Tick).await?;
                }
            }
        }
    }

    async fn take(&mut self, mail: Mail) -> Result<(), StoreError> {
        match mail {
            Mail::Prompt { prompt, reply } => self.take_prompt(prompt, reply).await,
            Mail::Posted(prompt) => self.take_posted(prompt).await,
            Mail::Decided(gate) => {
                let waits = self.machine.gates.get(&gate.id);
                if waits.is_some_and(|known| known.status.is_pending()) {
                    self.meter.decided(&gate, self.shared.clock.now());
                }
                self.step(Input::Decided(gate)).await.map(drop)
            }
            Mail::Withdraw { prompt, reply } => {
                let outcome = self.withdraw(prompt).await;
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            Mail::CommandKind {
                order,
                posted,
                reply,
            } => {
                let outcome = self.order(order, posted).await;
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            Mail::Do(input, reply) => {
                let outcome = self.try_step(*input).await.map(drop);
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            Mail::Read(reply) => {
                let _ = reply.send(());
                Ok(())
            }
            Mail::Look => self.step(Input::Tick).await.map(drop),
            Mail::Delta(generation, delta) => {
                self.hear(generation, delta);
                Ok(())
            }
            Mail::Answered(generation, _) if generation != self.generation => Ok(()),
            Mail::Answered(_, answer) => {
                let outcome = if answer.is_ok() { "success" } else { "error" };
                self.meter.model_ended(outcome);
                self.model = None;
                self.partial.clear();
                self.failover = failover::Failover::default();
                let answer = self.told_apart(answer).await?;
                self.step(Input::Answered(answer)).await.map(drop)
            }
            Mail::Failed(generation, _) if generation != self.generation => Ok(()),
            Mail::Failed(_, error) => {
                self.meter.model_ended("error");
                self.unanswered(error).await
            }
            Mail::Choose(generation, _) if generation != self.generation => Ok(()),
            Mail::Choose(_, model) => self.step(Input::Choose(model)).await.map(drop),
            Mail::Compacted(generation, _) if generation != self.generation => Ok(()),
            Mail::Compacted(_, outcome) => self.compacted(outcome).await,
            Mail::Compact(reply) => {
                self.asked.push(reply);
                self.step(Input::Compact).await.map(drop)
            }
            Mail::UndoCompaction(reply) => {
                let outcome = self.undo_compaction().await;
                let _ = reply.send(outcome.clone());
                unless_unavailable(outcome)
            }
            Mail::Limit(limit) => self.step(Input::Limit(limit)).await.map(drop),
            Mail::Ended(call, outcome) => {
                self.tools.remove(&call);
                self.step(Input::Ended(call, outcome)).await.map(drop)
            }
            Mail::Ask {
                call,
                request,
                reply,
            } => {
                self.wait_for(&call, &request.resume_key, reply);
                self.step(Input::Ask(call, request)).await.map(drop)
            }
            Mail::Output { call, text } => {
                self.live(EventKind::ToolOutput { call, text });
                Ok(())
            }
            Mail::Process(call, process) => {
                self.step(Input::Process(call, process)).await.map(drop)
            }
            Mail::Effect(call, effect, reply) => {
                // Where it could not be written, whoever waits hears that by its being dropped.
                self.step(Input::Effect(call, effect)).await?;
                let _ = reply.send(());
                Ok(())
            }
            Mail::Artifact(call, artifact, reply) => {
                let written = self.step(Input::Artifact(call, artifact)).await;
                let _ = reply.send(());
                written.map(drop)
            }
        }
    }

    async fn take_prompt(
        &mut self,
        prompt: Box<QueuedPrompt>,
        reply: oneshot::Sender<Result<PromptId, StoreError>>,
    ) -> Result<(), StoreError> {
        let id = prompt.id.clone();
        let input = self.prompted_with(prompt);
        let outcome = self.try_step(input).await;
        let answer = outcome.clone().map(|accepted| accepted.unwrap_or(id));
        // Whoever asked may have gone away; it is written down all the same.
        let _ = reply.send(answer);
        match outcome {
            Err(StoreError::Conflict { .. }) => Ok(()),
            outcome => unless_unavailable(outcome),
        }
    }

    /// Whoever looked may have seen it before it was taken in.
    async fn take_posted(&mut self, prompt: Box<QueuedPrompt>) -> Result<(), StoreError> {
        if self.posted.insert(prompt.id.clone()) {
            let input = self.prompted_with(prompt);
            self.step(input).await?;
        }
        Ok(())
    }

    /// Takes a prompt out that has not begun, and gives it back.
    async fn withdraw(&mut self, prompt: PromptId) -> Result<Option<QueuedPrompt>, StoreError> {
        let waiting = self
            .machine
            .waiting(&prompt)
            .map(|it| QueuedPrompt::clone(it));
        if waiting.is_some() {
            self.try_step(Input::Withdraw(prompt)).await?;
        }
        Ok(waiting)
    }

    /// Carries an order out, once.
    async fn order(
        &mut self,
        order: CommandKind,
        posted: Option<PostedOrder>,
    ) -> Result<(), StoreError> {
        let last = self.machine.thread.last_command.as_ref();
        if posted.as_ref().is_some_and(|it| last == Some(&it.id)) {
            return Ok(());
        }
        let input = match order {
            CommandKind::Abort => Input::Abort {
                partial: self.partial.clone(),
                clear_queue: true,
            },
            CommandKind::Pause => Input::Pause,
            CommandKind::Resume => Input::Resume,
        };
        let input = match posted {
            Some(posted) => Input::Ordered(posted, Box::new(input)),
            None => input,
        };
        self.try_step(input).await.map(drop)
    }

    /// What a prompt is to the thread.
    fn prompted_with(&self, prompt: Box<QueuedPrompt>) -> Input {
        let busy = self.machine.thread.turn.is_some();
        if busy && prompt.mode == QueueMode::Steer {
            let partial = self.partial.clone();
            Input::Steer { prompt, partial }
        } else {
            Input::Prompt(prompt)
        }
    }

    /// Takes something in: decide, write down, do. Nothing is done that is not written.
    async fn step(&mut self, input: Input) -> Result<Option<PromptId>, StoreError> {
        self.step_within(input, false).await
    }

    /// The same for somebody who waits for it, and is told soon if it cannot be written: then
    /// it is as if they had not asked.
    async fn try_step(&mut self, input: Input) -> Result<Option<PromptId>, StoreError> {
        self.step_within(input, true).await
    }

    async fn step_within(
        &mut self,
        input: Input,
        somebody_waits: bool,
    ) -> Result<Option<PromptId>, StoreError> {
        // Asked for again only where a gate ends that is known here.
        let again = (!self.machine.gates.is_empty()).then(|| input.clone());
        let mut next = self.machine.clone();
        let output = next.handle(input, &self.env());
        let mut pauses = Pauses::default();
        let last = loop {
            match self.write_raised(&output.batch, output.raise).await {
                Ok(last) => break last,
                // Somebody was quicker: what they decided holds, and is taken in first.
                Err(StoreError::GateClosed(gate)) => {
                    let store = &self.shared.store;
                    let ended = patiently(|| store.gate(&gate)).await?;
                    let ended = ended.zip(again).ok_or(StoreError::GateClosed(gate))?;
                    Box::pin(self.step(Input::Decided(Box::new(ended.0)))).await?;
                    return Box::pin(self.step_within(ended.1, somebody_waits)).await;
                }
                Err(error @ StoreError::Unavailable(_))
                    if !(somebody_waits && pauses.is_long()) =>
                {
                    self.pause(&error, &mut pauses).await;
                }
                Err(error) => return Err(error),
            }
        };
        self.machine = next;
        self.tell(output.batch, last);
        if output.raise.is_some() {
            // What it waited for is there.
            let _ = self.own.send(Mail::Look);
        }
        for effect in output.effects {
            if let Err(error) = self.perform(effect).await {
                // What was taken in is written, whatever becomes of it.
                self.failed.get_or_insert(error);
                break;
            }
        }
        Ok(output.accepted)
    }

    /// Writes a batch, and a limit of the session that is higher now with it.
    async fn write_raised(&self, batch: &Batch, raise: Option<Raise>) -> Result<u64, StoreError> {
        let mut batch = batch.clone();
        let Some(raise) = raise else {
            return self.write(batch).await;
        };
        let shared = &self.shared;
        let _alone = shared.writing.lock().await;
        let mut data = Arc::unwrap_or_clone(shared.data());
        raise.apply(&mut data.limits);
        data.updated_at = shared.clock.now();
        let data = Arc::new(data);
        batch.push(Op::PutSession(Arc::clone(&data)));
        // Before the events of the thread, which are told by their distance from the last.
        if let Some(seal) = shared.seal_rows(&batch) {
            batch.ops.insert(0, seal);
        }
        let last = self.write(batch).await?;
        shared.budget.set_limits(data.limits);
        shared.put(data);
        Ok(last)
    }

    async fn write(&self, batch: Batch) -> Result<u64, StoreError> {
        if batch.is_empty() {
            return Ok(0);
        }
        let shared = &self.shared;
        shared.store.commit(&shared.lease, batch).await
    }

    fn env(&self) -> Env<'_> {
        Env {
            now: self.shared.clock.now(),
            calls: self.shared.calls,
            collect: self.shared.collect,
            model: &self.shared.model,
            paused: self.shared.is_paused(),
            reserve: self.reserve(),
            until: self.shared.budget.until(),
            limits: self.shared.budget.limits(),
            // A task ends, and the session that gave it asks.
            asks_for_more: self.shared.asks_for_more && !self.shared.budget.is_of_child(),
            signer: self.shared.key.as_deref(),
            last_seal: self.shared.last_seal(),
            prompted: self.prompted.as_ref(),
            compaction: &self.shared.compaction,
            windows: self,
            tools: &*self.shared.tools,
            children: self,
        }
    }

    /// What the next call of the model uses up at least: itself, and what it reads.
    fn reserve(&self) -> Usage {
        Usage {
            turns: 1,
            input_tokens: self.transcript.as_ref().map_or(0, Transcript::tokens),
            ..Usage::default()
        }
    }
}

/// Where nothing could be written nothing has changed, and whoever asked knows.
fn unless_unavailable<T>(outcome: Result<T, StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Unavailable(_)) => Ok(()),
        other => other.map(drop),
    }
}

impl Children for Runner {
    fn used(&self, call: &CallId) -> Usage {
        self.shared.budget.used_by(&self.machine.thread.id, call)
    }
}
