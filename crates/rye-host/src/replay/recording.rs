//! Extracts prompts, model steps and tool results from a recorded session.

use std::collections::{BTreeSet, HashMap};

use rye_engine::model::Models;
use rye_engine::protocol::{
    Archive, Author, CallId, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, EventKind, Message,
    ModelContext, Part, PromptId, PromptStatus, QueuedPrompt, ResultStatus, Role, Thread, Usage,
};
use serde_json::Value;

/// A prompt to repeat.
#[derive(Debug, Clone)]
pub(super) struct RecordedPrompt {
    pub(super) id: PromptId,
    pub(super) content: String,
    pub(super) attachments: Vec<Part>,
    pub(super) author: Option<Author>,
    pub(super) model: Option<String>,
    pub(super) role: Option<String>,
    pub(super) schema: Option<Value>,
    /// Whether it only asked for a review, without a model call.
    pub(super) review: bool,
    /// Whether it reached its time limit while a tool ran or the model answered.
    pub(super) reaches_time_limit: bool,
    /// Why the replay stops before it, if so.
    pub(super) stops: Option<String>,
}

/// Outcome of a model call.
#[derive(Debug, Clone)]
pub(crate) enum StepKind {
    /// A complete answer, with its usage.
    Answered(Box<Message>, Usage),
    /// A partial answer, because the call was aborted.
    Aborted(Box<Message>),
    /// An error, which ended the prompt.
    Failed(ErrorInfo),
    /// A summary for a compaction.
    Compacted {
        summary: String,
        /// Whether the compaction followed a context overflow.
        after_overflow: bool,
    },
    /// An error while summarising for a compaction.
    CompactionFailed,
}

impl StepKind {
    /// The model, if it was recorded.
    pub(super) fn model(&self) -> Option<&str> {
        match self {
            Self::Answered(message, _) | Self::Aborted(message) => message.model.as_deref(),
            _ => None,
        }
    }
}

/// A step of a model, and its prompt.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(super) prompt: Option<PromptId>,
    pub(crate) kind: StepKind,
}

/// The result of a tool call.
#[derive(Debug, Clone)]
pub(super) struct RecordedResult {
    pub(super) parts: Vec<Part>,
    /// Calls of the same answer whose results come before.
    pub(super) before: Vec<CallId>,
}

/// An external event that ended a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// A user aborted the turn.
    Abort,
    /// A steering prompt replaced the turn.
    Steer,
    /// The prompt reached its time limit.
    TimeLimit,
    /// The host died.
    HostDied,
}

/// Prompts, model steps and tool results of a recorded thread, in order.
#[derive(Debug, Default)]
pub(super) struct ThreadRecording {
    pub(super) prompts: Vec<RecordedPrompt>,
    pub(super) steps: Vec<Step>,
    pub(super) results: HashMap<CallId, RecordedResult>,
    pub(super) contexts: Vec<ModelContext>,
}

impl ThreadRecording {
    pub(super) fn new(archive: &Archive, thread: &Thread) -> Self {
        let mut path = path(archive, thread);
        // What a fork shares with its origin is not repeated.
        path.drain(..shared_entries(archive, &path));
        let own = archive.events.iter();
        let own = own.filter(|event| event.thread.as_ref() == Some(&thread.id));
        let contexts = own.filter_map(|event| match &event.kind {
            EventKind::ContextChanged { context } => Some((**context).clone()),
            _ => None,
        });
        let prompts = prompts(archive, &path);
        let ended = archive.prompts.iter();
        let ended = ended.filter(|it| it.status == PromptStatus::Aborted && !it.review);
        let mut steps = steps(archive, thread, &path);
        for prompt in ended {
            add_silent_abort(prompt, &path, &mut steps);
        }
        Self {
            prompts,
            steps,
            results: results(&path),
            contexts: contexts.collect(),
        }
    }

    /// Models that answered in the recording and are not available now, with the reason.
    pub(super) fn missing_models(&self, models: &dyn Models) -> Vec<(String, String)> {
        let answered = self.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Answered(message, _) => message.model.clone(),
            _ => None,
        });
        let names: BTreeSet<_> = answered.collect();
        let missing = names.into_iter().filter_map(|name| {
            let error = models.get(&name).err()?;
            Some((name, error))
        });
        missing.collect()
    }
}

/// The active path of a thread.
pub(crate) fn path(archive: &Archive, thread: &Thread) -> Vec<Entry> {
    let all: HashMap<_, _> = archive.entries.iter().map(|it| (&it.id, it)).collect();
    let mut path = Vec::new();
    let mut next = thread.leaf.as_ref().and_then(|id| all.get(id)).copied();
    while let Some(entry) = next {
        path.push(entry.clone());
        next = entry.parent.as_ref().and_then(|id| all.get(id)).copied();
    }
    path.reverse();
    path
}

/// Number of entries at the start of a path that a fork shares with the session it was forked from.
pub(super) fn shared_entries(archive: &Archive, path: &[Entry]) -> usize {
    let last = archive.session.forked_from.as_ref().map(|it| &it.entry);
    let last = last.and_then(|last| path.iter().position(|entry| entry.id == *last));
    last.map_or(0, |last| last + 1)
}

/// The steps of models on a path, in order.
pub(crate) fn steps(archive: &Archive, thread: &Thread, path: &[Entry]) -> Vec<Step> {
    let data = EventData::new(archive, thread);
    let mut steps = Vec::new();
    for entry in path {
        let kind = match &entry.kind {
            EntryKind::Message(message) if message.role == Role::Assistant => {
                Some(step_kind(message, data.usage.get(&entry.id).copied()))
            }
            EntryKind::Compaction {
                summary,
                without_media,
                ..
            } => Some(StepKind::Compacted {
                summary: summary.clone(),
                after_overflow: *without_media,
            }),
            _ => None,
        };
        let prompt = &entry.prompt;
        let step = |kind| Step {
            prompt: prompt.clone(),
            kind,
        };
        steps.extend(kind.map(step));
        let failed = data
            .failed_compactions
            .iter()
            .filter(|after| **after == entry.id);
        steps.extend(failed.map(|_| step(StepKind::CompactionFailed)));
    }
    steps
}

fn step_kind(message: &Message, usage: Option<Usage>) -> StepKind {
    let error = message.parts.iter().find_map(|part| match part {
        Part::Error { error } => Some(error.clone()),
        _ => None,
    });
    if let Some(error) = error {
        return StepKind::Failed(error);
    }
    let message = Box::new(message.clone());
    if message.aborted.is_some() {
        StepKind::Aborted(message)
    } else {
        StepKind::Answered(message, usage.unwrap_or_default())
    }
}

/// Data about entries that is only in events.
#[derive(Default)]
struct EventData {
    /// Usage per answer.
    usage: HashMap<EntryId, Usage>,
    /// Entries after which a compaction failed.
    failed_compactions: Vec<EntryId>,
}

impl EventData {
    fn new(archive: &Archive, thread: &Thread) -> Self {
        let own = archive.events.iter();
        let own = own.filter(|event| event.thread.as_ref() == Some(&thread.id));
        let (mut data, mut last) = (Self::default(), None);
        for event in own {
            match (&event.kind, &last) {
                (EventKind::MessageEnd { entry }, _) => last = Some(entry.clone()),
                (EventKind::Usage { usage }, Some(last)) => {
                    data.usage.insert(last.clone(), *usage);
                }
                // With other errors, no model was called.
                (
                    EventKind::CompactionEnd {
                        error: Some(error), ..
                    },
                    Some(last),
                ) if error.code == ErrorCode::Model => {
                    data.failed_compactions.push(last.clone());
                }
                _ => {}
            }
        }
        data
    }
}

/// Adds a step for a prompt that was aborted before the model produced output.
fn add_silent_abort(prompt: &QueuedPrompt, path: &[Entry], steps: &mut Vec<Step>) {
    let own = |entry: &&Entry| entry.prompt.as_ref() == Some(&prompt.id);
    let Some(last) = path.iter().rfind(own) else {
        return;
    };
    let EntryKind::Message(message) = &last.kind else {
        return;
    };
    let has_step = message.role == Role::Assistant || ending(message).is_some();
    if has_step {
        return;
    }
    let is_of_prompt = |step: &Step| step.prompt.as_ref() == Some(&prompt.id);
    let after = steps.iter().rposition(is_of_prompt);
    // The position of a prompt without steps does not matter.
    let at = after.map_or(steps.len(), |after| after + 1);
    let message = Box::new(Message::new(Role::Assistant, Vec::new()));
    let prompt = Some(prompt.id.clone());
    let kind = StepKind::Aborted(message);
    steps.insert(at, Step { prompt, kind });
}

fn results(path: &[Entry]) -> HashMap<CallId, RecordedResult> {
    let (mut all, mut before) = (HashMap::new(), Vec::new());
    for entry in path {
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        match (message.role, message.parts.first()) {
            (Role::Tool, Some(Part::ToolResult { call_id, .. })) => {
                let result = RecordedResult {
                    parts: message.parts.clone(),
                    before: before.clone(),
                };
                before.push(call_id.clone());
                all.insert(call_id.clone(), result);
            }
            (Role::Assistant, _) => before.clear(),
            _ => {}
        }
    }
    all
}

/// The external event that ended a call of a message, if any.
pub(super) fn ending(message: &Message) -> Option<Ending> {
    message.parts.iter().find_map(part_ending)
}

pub(super) fn part_ending(part: &Part) -> Option<Ending> {
    let Part::ToolResult { status, data, .. } = part else {
        return None;
    };
    match status {
        ResultStatus::Interrupted => Some(Ending::HostDied),
        ResultStatus::Aborted => Some(match data["reason"].as_str() {
            Some("steer") => Ending::Steer,
            Some("limit") => Ending::TimeLimit,
            _ => Ending::Abort,
        }),
        ResultStatus::Success | ResultStatus::Error => None,
    }
}

/// The prompts of a path, in order.
fn prompts(archive: &Archive, path: &[Entry]) -> Vec<RecordedPrompt> {
    let mut seen = BTreeSet::new();
    let order = path.iter().filter_map(|entry| entry.prompt.clone());
    let order = order.filter(|id| seen.insert(id.clone()));
    let prompts = order.filter_map(|id| archive.prompts.iter().find(|prompt| prompt.id == id));
    // The engine repeats its own continuation prompts.
    let posted = prompts.filter(|prompt| !prompt.compaction_continue);
    posted.map(|prompt| self::prompt(prompt, path)).collect()
}

fn prompt(prompt: &QueuedPrompt, path: &[Entry]) -> RecordedPrompt {
    let is_of_prompt = path
        .iter()
        .filter(|it| it.prompt.as_ref() == Some(&prompt.id));
    let mut messages = is_of_prompt.filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message),
        _ => None,
    });
    let reached_time_limit = |message: &Message| {
        message.aborted.as_deref() == Some("limit") || ending(message) == Some(Ending::TimeLimit)
    };
    let reaches_time_limit = messages.clone().any(reached_time_limit);
    let stops = (!prompt.status.is_finished()).then(|| {
        let start: String = prompt.content.chars().take(60).collect();
        format!("stopped before `{start}`, which is not finished")
    });
    let first = messages.find_map(|message| message.model.clone());
    RecordedPrompt {
        id: prompt.id.clone(),
        content: prompt.content.clone(),
        attachments: prompt.attachments.clone(),
        author: prompt.author.clone(),
        // The model that answered may differ from the requested one.
        model: first.or_else(|| prompt.model.clone()),
        role: prompt.role.clone(),
        schema: prompt.result_schema.clone(),
        review: prompt.review,
        reaches_time_limit,
        stops,
    }
}
