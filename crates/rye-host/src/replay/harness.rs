//! Models and tools that repeat their recorded answers and results in the recorded order, and
//! request the external actions of the recording.

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::model::{
    Delta, Deltas, Model, ModelAnswer, ModelError, ModelFamily, ModelInfo, ModelRequest, Models,
    RetryPolicy,
};
use rye_engine::protocol::{CallId, Event, EventKind, Part, PromptId, ResultStatus, Usage};
use rye_engine::tool::{
    ApprovalRequirement, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_engine::{Session, store::StoreError};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::recording::{Ending, RecordedResult, StepKind, ThreadRecording, part_ending};

/// An external action on a prompt that must be repeated now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExternalAction {
    pub(super) prompt: PromptId,
    pub(super) ending: Ending,
}

/// Replays the recording of a thread.
pub(super) struct Harness {
    pub(super) recording: ThreadRecording,
    position: Mutex<Position>,
    /// The session of the replay. Cleared at the end, because the session refers to the harness.
    session: watch::Sender<Option<Session>>,
    progress: watch::Sender<CallProgress>,
    actions: mpsc::UnboundedSender<ExternalAction>,
}

/// Progress of the replay.
#[derive(Default)]
struct Position {
    /// The current prompt, with its recorded id.
    prompt: Option<PromptId>,
    /// Index of the next step.
    step: usize,
    /// Whether a recorded compaction failure was repeated once; the engine tries twice.
    failed_once: bool,
}

/// Progress of tool calls.
#[derive(Debug, Clone, Default)]
struct CallProgress {
    last: u64,
    started: HashSet<CallId>,
    ended: HashSet<CallId>,
}

impl CallProgress {
    fn update(&mut self, event: &Event) {
        self.last = event.sequence.unwrap_or(self.last);
        match &event.kind {
            EventKind::ToolStart { call, .. } => drop(self.started.insert(call.clone())),
            EventKind::ToolEnd { call, .. } => drop(self.ended.insert(call.clone())),
            _ => {}
        }
    }
}

impl Harness {
    /// Returns the harness, and the external actions to perform.
    pub(super) fn new(
        recording: ThreadRecording,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<ExternalAction>) {
        let (actions, receiver) = mpsc::unbounded_channel();
        let harness = Self {
            recording,
            position: Mutex::default(),
            session: watch::Sender::new(None),
            progress: watch::Sender::new(CallProgress::default()),
            actions,
        };
        (Arc::new(harness), receiver)
    }

    fn position(&self) -> std::sync::MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes a session until it is closed.
    pub(super) fn attach(self: &Arc<Self>, session: &Session) {
        self.progress.send_replace(CallProgress::default());
        self.session.send_replace(Some(session.clone()));
        let (harness, mut events) = (Arc::clone(self), session.subscribe(0));
        tokio::spawn(async move {
            while let Ok(Some(notice)) = events.next().await {
                harness
                    .progress
                    .send_modify(|progress| progress.update(&notice.event));
            }
        });
    }

    /// Forgets the session.
    pub(super) fn detach(&self) {
        self.session.send_replace(None);
    }

    /// Moves to the first step of a prompt.
    pub(super) fn begin(&self, prompt: &PromptId) {
        let is_of_prompt = |step: &super::recording::Step| step.prompt.as_ref() == Some(prompt);
        let first = self.recording.steps.iter().position(is_of_prompt);
        let mut position = self.position();
        position.step = first.unwrap_or(position.step);
        position.failed_once = false;
        position.prompt = Some(prompt.clone());
    }

    /// Requests an external action, and never returns: the action ends the caller.
    async fn wait_for_action(&self, ending: Ending) -> ! {
        let prompt = self.position().prompt.clone();
        let action = prompt.map(|prompt| ExternalAction { prompt, ending });
        let _ = action.map(|action| self.actions.send(action));
        pending().await
    }

    /// The next recorded summary; none if the compaction failed.
    fn next_summary(&self) -> Option<String> {
        let mut position = self.position();
        let step = self.recording.steps.get(position.step)?;
        match &step.kind {
            StepKind::Compacted { summary, .. } => {
                position.step += 1;
                Some(summary.clone())
            }
            StepKind::CompactionFailed => {
                let is_second = std::mem::replace(&mut position.failed_once, true);
                if is_second {
                    position.step += 1;
                    position.failed_once = false;
                }
                None
            }
            _ => None,
        }
    }

    /// The next step of a model.
    fn next_step(&self, name: &str) -> NextStep {
        let mut position = self.position();
        loop {
            let Some(step) = self.recording.steps.get(position.step) else {
                return NextStep::None;
            };
            match &step.kind {
                StepKind::Compacted {
                    after_overflow: true,
                    ..
                } => return NextStep::Overflow,
                // A user requested the compaction; it is not repeated.
                StepKind::Compacted { .. } | StepKind::CompactionFailed => position.step += 1,
                kind if kind.model().is_some_and(|model| model != name) => {
                    return NextStep::OtherModel;
                }
                kind => {
                    position.step += 1;
                    return NextStep::Perform(kind.clone());
                }
            }
        }
    }

    /// The model of the next step.
    fn next_model(&self) -> Option<String> {
        let step = self.position().step;
        let step = self.recording.steps.get(step)?;
        step.kind.model().map(str::to_owned)
    }

    /// Waits until all started calls of these have a result.
    async fn wait_for_results(&self, before: &[CallId]) -> Result<(), StoreError> {
        if before.is_empty() {
            return Ok(());
        }
        let mut session = self.session.subscribe();
        let session = session.wait_for(Option::is_some).await;
        let session = session.ok().and_then(|session| session.clone());
        // Calls that started together with this one have an event by now.
        let last = match session {
            Some(session) => session.last_event().await?,
            None => 0,
        };
        let mut progress = self.progress.subscribe();
        let has_results = |progress: &CallProgress| {
            let open = |call: &&CallId| {
                progress.started.contains(*call) && !progress.ended.contains(*call)
            };
            progress.last >= last && !before.iter().any(|call| open(&call))
        };
        // The channel closes with the harness.
        let _ = progress.wait_for(has_results).await;
        Ok(())
    }
}

/// The next step of a model.
enum NextStep {
    Perform(StepKind),
    /// Report a context overflow.
    Overflow,
    /// Fail, because another model answered.
    OtherModel,
    None,
}

/// Models with recorded answers.
pub(super) struct RecordedModels {
    pub(super) harness: Arc<Harness>,
    /// The current models, which know the families.
    pub(super) models: Arc<dyn Models>,
}

impl Models for RecordedModels {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let harness = Arc::clone(&self.harness);
        let name = name.to_owned();
        Ok(Arc::new(RecordedModel { harness, name }))
    }

    fn default_name(&self) -> String {
        let mut steps = self.harness.recording.steps.iter();
        let first = steps.find_map(|step| step.kind.model());
        first.unwrap_or_default().to_owned()
    }

    fn family(&self, name: &str) -> ModelFamily {
        self.models.family(name)
    }

    /// The model that answered in the recording.
    fn failover(&self, _: &str) -> Vec<String> {
        self.harness.next_model().into_iter().collect()
    }

    fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: 1,
            initial_delay: Duration::ZERO,
            ..RetryPolicy::default()
        }
    }
}

struct RecordedModel {
    harness: Arc<Harness>,
    name: String,
}

impl Model for RecordedModel {
    fn info(&self) -> ModelInfo {
        let contexts = self.harness.recording.contexts.iter();
        let context = contexts.rev().find(|context| context.model == self.name);
        ModelInfo {
            context_window: context.map_or(u64::MAX, |context| context.context_window),
            max_output: context.map_or(1, |context| context.max_output),
            images: true,
        }
    }

    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            if request.for_summary {
                let none = || ModelError::Refused("the recording has no summary here".to_owned());
                let text = self.harness.next_summary().ok_or_else(none)?;
                return Ok(ModelAnswer {
                    parts: vec![Part::Text { text }],
                    stop_reason: None,
                    incomplete: None,
                    usage: Usage::default(),
                });
            }
            match self.harness.next_step(&self.name) {
                NextStep::Perform(StepKind::Answered(message, usage)) => Ok(ModelAnswer {
                    parts: message.parts,
                    stop_reason: message.stop_reason,
                    incomplete: message.incomplete,
                    usage,
                }),
                NextStep::Perform(StepKind::Failed(error)) => Err(ModelError::Recorded(error)),
                NextStep::Perform(StepKind::Aborted(message)) => {
                    deltas(Delta::Text(message.content()));
                    self.harness
                        .wait_for_action(match message.aborted.as_deref() {
                            Some("steer") => Ending::Steer,
                            Some("limit") => Ending::TimeLimit,
                            _ => Ending::Abort,
                        })
                        .await
                }
                NextStep::Overflow => Err(ModelError::ContextOverflow(
                    "recorded context overflow".to_owned(),
                )),
                NextStep::OtherModel => {
                    Err(ModelError::Connection("another model answered".to_owned()))
                }
                NextStep::Perform(StepKind::Compacted { .. } | StepKind::CompactionFailed)
                | NextStep::None => Err(ModelError::Refused(
                    "the recording has no further answer".to_owned(),
                )),
            }
        })
    }
}

/// A tool with recorded results.
pub(super) struct RecordedTool {
    def: ToolDef,
    harness: Arc<Harness>,
}

impl RecordedTool {
    pub(super) fn new(mut def: ToolDef, harness: Arc<Harness>) -> Self {
        def.is_task = false;
        def.timeout = None;
        // The recorded results already reflect the approvals.
        def.risk = None;
        def.approval = ApprovalRequirement::ByRisk;
        // A call that was repeated after a crash is repeated here without asking. Each call that was
        // not repeated sets its own effect class.
        def.effect = EffectClass::Idempotent;
        Self { def, harness }
    }
}

impl Tool for RecordedTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let none = || ToolError::failed("the recording has no result of this call");
            let result = self.harness.recording.results.get(&context.call);
            let RecordedResult { parts, before } = result.ok_or_else(none)?;
            let failed = |error: StoreError| ToolError::failed(error.to_string());
            self.harness
                .wait_for_results(before)
                .await
                .map_err(failed)?;
            let mut parts = parts.iter().cloned();
            let result = parts.next().ok_or_else(none)?;
            if let Some(ending) = part_ending(&result) {
                if ending == Ending::HostDied {
                    context.set_effect(EffectClass::AtMostOnce).await?;
                }
                self.harness.wait_for_action(ending).await;
            }
            match result {
                Part::ToolResult {
                    status: ResultStatus::Success,
                    text,
                    data,
                    ..
                } => Ok(ToolOutput {
                    text,
                    data,
                    attachments: parts.collect(),
                }),
                Part::ToolResult {
                    error: Some(error), ..
                } => Err(ToolError(error)),
                _ => Err(none()),
            }
        })
    }
}
