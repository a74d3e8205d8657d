//! Where a record is played again: models that do what they did, and tools that give what
//! they gave, in the same order. What was done to them from outside is a cue for whoever
//! replays, who does it again.

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::model::{
    Delta, Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models, RetryPolicy,
};
use rye_engine::protocol::{CallId, Event, EventKind, Part, PromptId, ResultStatus, Usage};
use rye_engine::tool::{Approval, Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Session, store::StoreError};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::recorded::{Did, Ending, Given, Recorded, ending_of};

/// Something that was done to a prompt from outside, and is to be done again now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cue {
    pub(super) prompt: PromptId,
    pub(super) ending: Ending,
}

/// Where a thread is played again.
pub(super) struct Stage {
    pub(super) recorded: Recorded,
    now: Mutex<Now>,
    /// Where it is played. Not kept beyond that: it has this in it.
    session: watch::Sender<Option<Session>>,
    heard: watch::Sender<Heard>,
    cues: mpsc::UnboundedSender<Cue>,
}

/// How far it is.
#[derive(Default)]
struct Now {
    /// The prompt that is asked, as the record names it.
    prompt: Option<PromptId>,
    /// The place of what a model does next.
    step: usize,
    /// Whether it was not summed up once, of twice that are tried.
    not_summed: bool,
}

/// What is known of calls.
#[derive(Debug, Clone, Default)]
struct Heard {
    last: u64,
    started: HashSet<CallId>,
    ended: HashSet<CallId>,
}

impl Heard {
    fn hear(&mut self, event: &Event) {
        self.last = event.sequence.unwrap_or(self.last);
        match &event.kind {
            EventKind::ToolStart { call, .. } => drop(self.started.insert(call.clone())),
            EventKind::ToolEnd { call, .. } => drop(self.ended.insert(call.clone())),
            _ => {}
        }
    }
}

impl Stage {
    /// A stage, and what is done to prompts from outside.
    pub(super) fn new(recorded: Recorded) -> (Arc<Self>, mpsc::UnboundedReceiver<Cue>) {
        let (cues, taken) = mpsc::unbounded_channel();
        let stage = Self {
            recorded,
            now: Mutex::default(),
            session: watch::Sender::new(None),
            heard: watch::Sender::new(Heard::default()),
            cues,
        };
        (Arc::new(stage), taken)
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is played in this session from now on, until that is closed.
    pub(super) fn play_in(self: &Arc<Self>, session: &Session) {
        self.heard.send_replace(Heard::default());
        self.session.send_replace(Some(session.clone()));
        let (stage, mut events) = (Arc::clone(self), session.subscribe(0));
        tokio::spawn(async move {
            while let Ok(Some(notice)) = events.next().await {
                stage.heard.send_modify(|heard| heard.hear(&notice.event));
            }
        });
    }

    /// It is played nowhere.
    pub(super) fn leave(&self) {
        self.session.send_replace(None);
    }

    /// A prompt is about to be asked.
    pub(super) fn begin(&self, prompt: &PromptId) {
        let of_prompt = |step: &super::recorded::Step| step.prompt.as_ref() == Some(prompt);
        let first = self.recorded.steps.iter().position(of_prompt);
        let mut now = self.now();
        now.step = first.unwrap_or(now.step);
        now.not_summed = false;
        now.prompt = Some(prompt.clone());
    }

    /// Waits for whoever replays to do again what was done. It does not come back from that.
    async fn ends(&self, ending: Ending) -> ! {
        let prompt = self.now().prompt.clone();
        let cue = prompt.map(|prompt| Cue { prompt, ending });
        let _ = cue.map(|cue| self.cues.send(cue));
        pending().await
    }

    /// What comes next when somebody asks for a sum.
    fn sum(&self) -> Option<String> {
        let mut now = self.now();
        let step = self.recorded.steps.get(now.step)?;
        match &step.did {
            Did::Summed { summary, .. } => {
                now.step += 1;
                Some(summary.clone())
            }
            Did::NotSummed => {
                let again = std::mem::replace(&mut now.not_summed, true);
                if again {
                    now.step += 1;
                    now.not_summed = false;
                }
                None
            }
            _ => None,
        }
    }

    /// What a model of a name does next.
    fn next(&self, name: &str) -> Next {
        let mut now = self.now();
        loop {
            let Some(step) = self.recorded.steps.get(now.step) else {
                return Next::Nothing;
            };
            match &step.did {
                Did::Summed { too_long: true, .. } => return Next::TooLong,
                // Somebody asked for it, and it is not asked for again.
                Did::Summed { .. } | Did::NotSummed => now.step += 1,
                did if did.model().is_some_and(|model| model != name) => return Next::Another,
                did => {
                    now.step += 1;
                    return Next::Does(did.clone());
                }
            }
        }
    }

    /// The model that does what comes next.
    fn next_model(&self) -> Option<String> {
        let step = self.now().step;
        let step = self.recorded.steps.get(step)?;
        step.did.model().map(str::to_owned)
    }

    /// Waits until all of these calls have a result, as far as they have begun.
    async fn behind(&self, before: &[CallId]) -> Result<(), StoreError> {
        if before.is_empty() {
            return Ok(());
        }
        let mut session = self.session.subscribe();
        let session = session.wait_for(Option::is_some).await;
        let session = session.ok().and_then(|session| session.clone());
        // What began with this call is written down by now.
        let last = match session {
            Some(session) => session.last_event().await?,
            None => 0,
        };
        let mut heard = self.heard.subscribe();
        let done = |heard: &Heard| {
            let open =
                |call: &&CallId| heard.started.contains(*call) && !heard.ended.contains(*call);
            heard.last >= last && !before.iter().any(|call| open(&call))
        };
        // It ends with the stage, and that with whoever waits.
        let _ = heard.wait_for(done).await;
        Ok(())
    }
}

enum Next {
    Does(Did),
    /// It says that the context is too long.
    TooLong,
    /// Another model does.
    Another,
    Nothing,
}

/// Models that answer as they did.
pub(super) struct Answers(pub(super) Arc<Stage>);

impl Models for Answers {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let stage = Arc::clone(&self.0);
        let name = name.to_owned();
        Ok(Arc::new(Answering { stage, name }))
    }

    fn default_name(&self) -> String {
        let mut steps = self.0.recorded.steps.iter();
        let first = steps.find_map(|step| step.did.model());
        first.unwrap_or_default().to_owned()
    }

    /// Whoever answered then, whatever the reason was.
    fn failover(&self, _: &str) -> Vec<String> {
        self.0.next_model().into_iter().collect()
    }

    fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: 1,
            initial_delay: Duration::ZERO,
            ..RetryPolicy::default()
        }
    }
}

struct Answering {
    stage: Arc<Stage>,
    name: String,
}

impl Model for Answering {
    fn info(&self) -> ModelInfo {
        let contexts = self.stage.recorded.contexts.iter();
        let known = contexts.rev().find(|context| context.model == self.name);
        ModelInfo {
            context_window: known.map_or(u64::MAX, |it| it.context_window),
            max_output: known.map_or(1, |it| it.max_output),
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
                let none = || ModelError::Refused("the record has no summary here".to_owned());
                let text = self.stage.sum().ok_or_else(none)?;
                return Ok(ModelAnswer {
                    parts: vec![Part::Text { text }],
                    stop_reason: None,
                    usage: Usage::default(),
                });
            }
            match self.stage.next(&self.name) {
                Next::Does(Did::Answered(message, usage)) => Ok(ModelAnswer {
                    parts: message.parts,
                    stop_reason: message.stop_reason,
                    usage,
                }),
                Next::Does(Did::Failed(error)) => Err(ModelError::Recorded(error)),
                Next::Does(Did::Cut(message)) => {
                    deltas(Delta::Text(message.content()));
                    let steered = message.metadata.get("aborted").and_then(Value::as_str);
                    self.stage
                        .ends(match steered {
                            Some("steer") => Ending::Steer,
                            _ => Ending::Abort,
                        })
                        .await
                }
                Next::TooLong => Err(ModelError::ContextOverflow("it was, then".to_owned())),
                Next::Another => Err(ModelError::Connection("another one answered".to_owned())),
                Next::Does(Did::Summed { .. } | Did::NotSummed) | Next::Nothing => Err(
                    ModelError::Refused("the record has no further answer".to_owned()),
                ),
            }
        })
    }
}

/// A tool that gives what it gave.
pub(super) struct RecordedTool {
    def: ToolDef,
    stage: Arc<Stage>,
}

impl RecordedTool {
    pub(super) fn new(mut def: ToolDef, stage: Arc<Stage>) -> Self {
        def.is_task = false;
        def.timeout = None;
        // It was approved, or was not, and the record has what came of that.
        def.risk = None;
        def.approval = Approval::ByRisk;
        // What was made again when its host had died is given again, and nobody is asked.
        def.effect = if stage.recorded.is_interrupted(&def.spec.name) {
            Effect::AtMostOnce
        } else {
            Effect::Idempotent
        };
        Self { def, stage }
    }
}

impl Tool for RecordedTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let none = || ToolError::failed("the record has no result of this call");
            let given = self.stage.recorded.results.get(&context.call);
            let Given { parts, before } = given.ok_or_else(none)?;
            let lost = |error: StoreError| ToolError::failed(error.to_string());
            self.stage.behind(before).await.map_err(lost)?;
            let mut parts = parts.iter().cloned();
            let result = parts.next().ok_or_else(none)?;
            if let Some(ending) = ending_of(&result) {
                self.stage.ends(ending).await;
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
