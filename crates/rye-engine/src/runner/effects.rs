//! What is done once it is written down.

use std::sync::Arc;

use rye_protocol::{CallId, ErrorCode, ErrorInfo, Gate, GateId, Limits};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::failover::Failover;
use super::media;
use super::unharmed::unharmed;
use super::{Mail, Runner};
use crate::machine::{Effect, Facts as _};
use crate::model::{Deltas, ModelAnswer, ModelRequest};
use crate::store::StoreError;
use crate::tool::ToolContext;
use crate::transcript::Transcript;

impl Runner {
    pub(super) async fn perform(&mut self, effect: Effect) -> Result<(), StoreError> {
        match effect {
            Effect::CallModel { model } => {
                self.meter.model_called(&model);
                self.call_model(&model).await?;
            }
            Effect::StopModel => {
                self.model = None;
                self.generation += 1;
                self.partial.clear();
                self.failover = Failover::default();
                self.asked.clear();
            }
            Effect::Compact { why, model } => self.compact(why, &model).await?,
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
        let (own, generation) = (self.own.clone(), self.generation);
        let thread = &self.machine.thread;
        let reserved = thread.turn.as_ref().map(|turn| turn.reserved);
        let now = self.shared.clock.now();
        let budget = &self.shared.budget;
        if let Err(limit) = budget.admit(&thread.id, reserved.unwrap_or_default(), now) {
            let _ = own.send(Mail::Limit(limit));
            return Ok(());
        }
        let guidance = match self.guidance().await {
            Ok(guidance) => guidance,
            Err(error) => {
                let _ = own.send(Mail::Answered(generation, Err(error)));
                return Ok(());
            }
        };
        let round = self.machine.thread.turn.as_ref().map(|turn| turn.round);
        if let Some(wanted) = &guidance.model
            && round == Some(0)
            && wanted != name
            && self.failover == Failover::default()
        {
            let _ = own.send(Mail::Choose(generation, wanted.clone()));
            return Ok(());
        }
        let model = match self.shared.models.get(name) {
            Ok(model) => model,
            Err(why) => {
                let error = ErrorInfo::new(ErrorCode::UnknownModel, why);
                let _ = own.send(Mail::Answered(generation, Err(error)));
                return Ok(());
            }
        };
        self.remember_prompt(name, model.info(), &guidance);
        let mut messages = self.transcript().await?.messages();
        if model.info().images {
            messages = self.with_images(messages).await;
        }
        let request = ModelRequest {
            system: guidance.system.clone(),
            messages,
            tools: self.shared.tools.specs(),
            // What is said may use up what is left, and no more.
            max_output: self.left().tokens.map(|tokens| tokens.max(1)),
            for_summary: false,
        };
        let heard = own.clone();
        let deltas: Deltas = Arc::new(move |delta| {
            let _ = heard.send(Mail::Delta(generation, delta));
        });
        let wait = self.failover.wait();
        let redactor = self.shared.redactor.clone();
        let task = tokio::spawn(async move {
            // Even to sleep for no time takes a while.
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let mail = match unharmed(media::ask(&*model, request, deltas)).await {
                Ok(Ok(answer)) => Mail::Answered(generation, Ok(Box::new(answer))),
                Ok(Err(error)) => Mail::Failed(generation, error),
                Err(why) => Mail::Answered(generation, Err(broken(&redactor.redact(&why)))),
            };
            let _ = own.send(mail);
        });
        self.model = Some(AbortOnDropHandle::new(task));
        Ok(())
    }

    /// The history, read from the record the first time.
    async fn transcript(&mut self) -> Result<&Transcript, StoreError> {
        if self.transcript.is_none() {
            let path = self.path().await?;
            self.transcript = Some(Transcript::of(&path));
        }
        Ok(self.transcript.get_or_insert_default())
    }

    /// An answer whose calls have ids that no call before them has.
    pub(super) async fn told_apart(
        &mut self,
        mut answer: Result<Box<ModelAnswer>, ErrorInfo>,
    ) -> Result<Result<Box<ModelAnswer>, ErrorInfo>, StoreError> {
        if let Ok(answer) = &mut answer {
            let transcript = self.transcript().await?;
            transcript.tell_apart(&mut answer.parts);
        }
        Ok(answer)
    }

    /// What is left of the limits of the session and of the prompt, without what the call
    /// that is being made has reserved.
    fn left(&self) -> Limits {
        let turn = self.machine.thread.turn.as_ref();
        let of_prompt = turn.and_then(|turn| {
            let prompt = self
                .machine
                .prompts
                .iter()
                .find(|it| it.id == turn.prompt)?;
            Some(prompt.limits.remaining(&turn.usage.plus(turn.reserved)))
        });
        self.shared.budget.left().min(of_prompt.unwrap_or_default())
    }

    fn run_tool(&mut self, call: CallId, tool: &str, args: Value) {
        let Some(turn) = &self.machine.thread.turn else {
            return;
        };
        let mut prompts = self.machine.prompts.iter();
        let prompt = prompts.find(|prompt| prompt.id == turn.prompt);
        let session = self.shared.data();
        let context = ToolContext {
            session: session.id.clone(),
            user: session.user_id.clone(),
            org: session.org_id.clone(),
            author: prompt.and_then(|prompt| prompt.author.clone()),
            workspace: session.workspace.clone(),
            thread: self.machine.thread.id.clone(),
            prompt: turn.prompt.clone(),
            call: call.clone(),
            sandbox: Arc::clone(&self.shared.sandbox),
            left: self.left(),
            engine: self.shared.engine.clone(),
            redactor: self.shared.redactor.clone(),
            told: Arc::default(),
            mail: self.own.clone(),
        };
        let is_task = self.shared.tools.of(tool).is_some_and(|it| it.is_task);
        let child = is_task.then(|| context.child_id());
        let work = self.shared.tools.run(tool, args, context);
        let (own, id) = (self.own.clone(), call.clone());
        let task = tokio::spawn(async move {
            let outcome = work.await;
            let _ = own.send(Mail::Ended(id, outcome.map(Box::new)));
        });
        self.tools
            .insert(call, (AbortOnDropHandle::new(task), child));
    }

    /// Ends a call: dropping its task ends what it began, but for a session below.
    fn stop_tool(&mut self, call: &CallId) {
        let Some((tool, child)) = self.tools.remove(call) else {
            return;
        };
        let (Some(child), Some(engine)) = (child, self.shared.engine.upgrade()) else {
            return;
        };
        tokio::spawn(async move {
            tool.abort();
            // It may be about to make the child.
            let _ = tool.await;
            // If this cannot be written, whoever opens the parent next does it.
            let _ = engine.end_child(&child).await;
        });
    }

    /// Remembers who waits for a gate.
    pub(super) fn wait_for(
        &mut self,
        call: &CallId,
        resume_key: &str,
        reply: oneshot::Sender<Box<Gate>>,
    ) {
        let thread = &self.machine.thread;
        // A turn that is over answers by dropping it.
        let Some(turn) = &thread.turn else {
            return;
        };
        let gate = GateId::new(&thread.session, &thread.id, &turn.prompt, resume_key);
        let waiting = self.waiting.entry((call.clone(), gate)).or_default();
        waiting.push(reply);
    }

    fn reply(&mut self, call: &CallId, gate: &Gate) {
        let key = (call.clone(), gate.id.clone());
        for waiting in self.waiting.remove(&key).unwrap_or_default() {
            let _ = waiting.send(Box::new(gate.clone()));
        }
    }
}

/// What is told of a model that panicked.
pub(super) fn broken(why: &str) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::Model, format!("the model broke down: {why}"))
}
