//! Performs effects once the step that requested them is committed.

use std::sync::Arc;

use rye_protocol::{CallId, ErrorCode, ErrorInfo, Gate, GateId, Limits};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::admission;
use super::catch_panic;
use super::failover::Failover;
use super::media;
use super::{Runner, ThreadCommand};
use crate::child::is_in_background;
use crate::machine::{Effect, ToolLookup as _};
use crate::model::{Deltas, ModelAnswer, ModelRequest};
use crate::sandbox::with_editor;
use crate::store::StoreError;
use crate::tool::ToolContext;
use crate::transcript::Transcript;

impl Runner {
    pub(super) async fn perform(&mut self, effect: Effect) -> Result<(), StoreError> {
        match effect {
            Effect::CallModel { model } => {
                self.timer.model_called(&model);
                self.call_model(&model).await?;
            }
            Effect::StopModel => {
                self.model = None;
                self.generation += 1;
                self.partial.clear();
                self.failover = Failover::default();
                self.compaction_waiters.clear();
            }
            Effect::Compact { reason, model } => self.compact(reason, &model).await?,
            Effect::RunTool { call, tool, args } => self.run_tool(call, &tool, args),
            Effect::StopTool(call) => self.stop_tool(&call),
            Effect::Reply(call, gate) => self.reply(&call, &gate),
            Effect::WakeAt(at) => self.wake_at = Some(at),
        }
        Ok(())
    }

    async fn call_model(&mut self, name: &str) -> Result<(), StoreError> {
        self.generation += 1;
        self.partial.clear();
        let (command_tx, generation) = (self.command_tx.clone(), self.generation);
        let thread = &self.machine.thread;
        let reserved = thread.turn.as_ref().map(|turn| turn.reserved);
        let now = self.shared.clock.now();
        let budget = &self.shared.budget;
        if let Err(limit) = budget.admit(&thread.id, reserved.unwrap_or_default(), now) {
            let _ = command_tx.send(ThreadCommand::LimitReached(limit));
            return Ok(());
        }
        let prompt = match self.system_prompt(name).await {
            Ok(prompt) => prompt,
            Err(error) => {
                let _ = command_tx.send(ThreadCommand::ModelAnswered(generation, Err(error)));
                return Ok(());
            }
        };
        let round = self.machine.thread.turn.as_ref().map(|turn| turn.round);
        if let Some(role_model) = &prompt.model
            && round == Some(0)
            && role_model != name
            && self.failover == Failover::default()
        {
            let _ = command_tx.send(ThreadCommand::SwitchModel(generation, role_model.clone()));
            return Ok(());
        }
        let model = match self.shared.setup.models.get(name) {
            Ok(model) => model,
            Err(message) => {
                let error = ErrorInfo::new(ErrorCode::UnknownModel, message);
                let _ = command_tx.send(ThreadCommand::ModelAnswered(generation, Err(error)));
                return Ok(());
            }
        };
        self.record_model_context(name, model.info(), &prompt);
        let transcript = self.transcript().await?;
        let compacted_answers = transcript.compacted_answers();
        let mut messages = transcript.messages();
        if model.info().images {
            messages = self.with_images(messages).await;
        }
        let request = ModelRequest {
            system: prompt.text(),
            messages,
            tools: self
                .shared
                .tools
                .specs(self.shared.setup.models.family(name)),
            // The answer may use what is left of the limits.
            max_output: self.remaining_limits().tokens.map(|tokens| tokens.max(1)),
            for_summary: false,
            previous_compactions: 0,
            compacted_answers,
        };
        let delta_tx = command_tx.clone();
        let deltas: Deltas = Arc::new(move |delta| {
            let _ = delta_tx.send(ThreadCommand::Delta(generation, delta));
        });
        let wait = self.failover.wait();
        let redactor = self.shared.setup.redactor.clone();
        let admission = self.admission();
        let work = async move {
            // Even a zero-length sleep yields to the timer.
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if let Err(error) = admission::admit(admission.as_ref()).await {
                let _ = command_tx.send(ThreadCommand::ModelAnswered(generation, Err(error)));
                return;
            }
            let command = match catch_panic(media::call_model(&*model, request, deltas)).await {
                Ok(Ok(answer)) => {
                    admission::record(admission.as_ref(), answer.usage).await;
                    ThreadCommand::ModelAnswered(generation, Ok(Box::new(answer)))
                }
                Ok(Err(error)) => ThreadCommand::ModelFailed(generation, error),
                Err(panic) => ThreadCommand::ModelAnswered(
                    generation,
                    Err(panic_error(&redactor.redact(&panic))),
                ),
            };
            let _ = command_tx.send(command);
        };
        let task = tokio::spawn(work.instrument(self.timer.model_span()));
        self.model = Some(AbortOnDropHandle::new(task));
        Ok(())
    }

    /// The message history, loaded from the store the first time.
    async fn transcript(&mut self) -> Result<&Transcript, StoreError> {
        if self.transcript.is_none() {
            let path = self.path().await?;
            self.transcript = Some(Transcript::new(&path));
        }
        Ok(self.transcript.get_or_insert_default())
    }

    /// Replaces call ids that an earlier call in the history already has.
    pub(super) async fn dedupe_call_ids(
        &mut self,
        mut answer: Result<Box<ModelAnswer>, ErrorInfo>,
    ) -> Result<Result<Box<ModelAnswer>, ErrorInfo>, StoreError> {
        if let Ok(answer) = &mut answer {
            let transcript = self.transcript().await?;
            transcript.dedupe_call_ids(&mut answer.parts);
        }
        Ok(answer)
    }

    /// What is left of the session's and the prompt's limits, not counting what the current call
    /// has reserved.
    fn remaining_limits(&self) -> Limits {
        let turn = self.machine.thread.turn.as_ref();
        let prompt_limits = turn.and_then(|turn| {
            let prompt = self
                .machine
                .prompts
                .iter()
                .find(|it| it.id == turn.prompt)?;
            Some(prompt.limits.remaining(&turn.usage.plus(turn.reserved)))
        });
        self.shared
            .budget
            .remaining()
            .min(prompt_limits.unwrap_or_default())
    }

    fn run_tool(&mut self, call: CallId, tool: &str, args: Value) {
        let Some(turn) = &self.machine.thread.turn else {
            return;
        };
        let mut prompts = self.machine.prompts.iter();
        let prompt = prompts.find(|prompt| prompt.id == turn.prompt);
        let session = self.shared.data();
        let engine = self.shared.engine.upgrade();
        let editor = engine.and_then(|engine| engine.editor(&session.id));
        let context = ToolContext {
            session: session.id.clone(),
            user: session.user_id.clone(),
            org: session.org_id.clone(),
            author: prompt.and_then(|prompt| prompt.author.clone()),
            workspace: session.workspace.clone(),
            thread: self.machine.thread.id.clone(),
            prompt: turn.prompt.clone(),
            call: call.clone(),
            sandbox: with_editor(&self.shared.sandbox, editor),
            remaining: self.remaining_limits(),
            engine: self.shared.engine.clone(),
            setup: Arc::clone(&self.shared.setup),
            redactor: self.shared.setup.redactor.clone(),
            live_output: Arc::default(),
            commands: self.command_tx.clone(),
        };
        let traits = self.shared.tools.traits(tool);
        let is_task = traits.is_some_and(|it| it.is_task) && !is_in_background(&args);
        let child = is_task.then(|| context.child_id());
        let work = self.shared.tools.run(tool, args, context);
        let (command_tx, id) = (self.command_tx.clone(), call.clone());
        let work = async move {
            let outcome = work.await;
            let _ = command_tx.send(ThreadCommand::ToolEnded(id, outcome.map(Box::new)));
        };
        let task = tokio::spawn(work.instrument(self.timer.tool_span(&call)));
        self.tools
            .insert(call, (AbortOnDropHandle::new(task), child));
    }

    /// Aborts a tool call. Dropping its task stops its work; a child session is closed separately.
    fn stop_tool(&mut self, call: &CallId) {
        let Some((tool, child)) = self.tools.remove(call) else {
            return;
        };
        let (Some(child), Some(engine)) = (child, self.shared.engine.upgrade()) else {
            return;
        };
        tokio::spawn(async move {
            tool.abort();
            // It may be about to create the child.
            let _ = tool.await;
            // If this cannot be committed, the host that opens the parent next does it.
            let _ = engine.close_child(&child).await;
        });
    }

    /// Registers a caller that waits for a gate to close.
    pub(super) fn wait_for(
        &mut self,
        call: &CallId,
        resume_key: &str,
        reply: oneshot::Sender<Box<Gate>>,
    ) {
        let thread = &self.machine.thread;
        // Dropping `reply` tells the caller that the turn is over.
        let Some(turn) = &thread.turn else {
            return;
        };
        let gate = GateId::new(&thread.session, &thread.id, &turn.prompt, resume_key);
        let waiting = self.gate_waiters.entry((call.clone(), gate)).or_default();
        waiting.push(reply);
    }

    fn reply(&mut self, call: &CallId, gate: &Gate) {
        let key = (call.clone(), gate.id.clone());
        for waiting in self.gate_waiters.remove(&key).unwrap_or_default() {
            let _ = waiting.send(Box::new(gate.clone()));
        }
    }
}

/// The error for a model implementation that panicked.
pub(super) fn panic_error(message: &str) -> ErrorInfo {
    let message = format!("the model implementation panicked: {message}");
    ErrorInfo::new(ErrorCode::Model, message)
}
