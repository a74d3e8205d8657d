//! What a record has for its replay: what was asked, what models did, and what tools gave.

use std::collections::{BTreeSet, HashMap};

use rye_engine::model::Models;
use rye_engine::protocol::{
    Archive, Author, CallId, Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, EventKind, Message,
    ModelContext, Part, PromptId, PromptStatus, QueuedPrompt, ResultStatus, Role, Thread, Usage,
};
use serde_json::Value;

/// A prompt that is asked again.
#[derive(Debug, Clone)]
pub(super) struct RecordedPrompt {
    pub(super) id: PromptId,
    pub(super) content: String,
    pub(super) attachments: Vec<Part>,
    pub(super) author: Option<Author>,
    pub(super) model: Option<String>,
    pub(super) role: Option<String>,
    pub(super) schema: Option<Value>,
    /// Whether its time was up while a tool ran.
    pub(super) runs_out_of_time: bool,
    /// Why the replay ends before it.
    pub(super) stops: Option<String>,
}

/// What a model did when it was asked, or whoever sums up.
#[derive(Debug, Clone)]
pub(crate) enum Did {
    /// It answered.
    Answered(Box<Message>, Usage),
    /// It was ended when it had said this.
    Cut(Box<Message>),
    /// The prompt ended with this.
    Failed(ErrorInfo),
    /// The history was summed up.
    Summed {
        summary: String,
        /// Because the model had said that it was too long.
        too_long: bool,
    },
    /// It could not be.
    NotSummed,
}

impl Did {
    /// The model that did it, where the record says which.
    pub(super) fn model(&self) -> Option<&str> {
        match self {
            Self::Answered(message, _) | Self::Cut(message) => message.model.as_deref(),
            _ => None,
        }
    }
}

/// Something that a model did, and for which prompt.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(super) prompt: Option<PromptId>,
    pub(crate) did: Did,
}

/// What came of a call.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) parts: Vec<Part>,
    /// Calls of the same answer that had a result before it.
    pub(super) before: Vec<CallId>,
}

/// How a call ended that has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Somebody ended it.
    Abort,
    /// Another prompt took its place.
    Steer,
    /// Its time was up.
    OutOfTime,
    /// Its host died.
    Death,
}

/// What a thread's record has for its replay.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) prompts: Vec<RecordedPrompt>,
    pub(super) steps: Vec<Step>,
    pub(super) results: HashMap<CallId, Given>,
    pub(super) contexts: Vec<ModelContext>,
}

impl Recorded {
    pub(super) fn of(archive: &Archive, thread: &Thread) -> Self {
        let path = path(archive, thread);
        let own = archive.events.iter();
        let own = own.filter(|event| event.thread.as_ref() == Some(&thread.id));
        let contexts = own.filter_map(|event| match &event.kind {
            EventKind::ContextChanged { context } => Some((**context).clone()),
            _ => None,
        });
        let prompts = prompts(archive, &path);
        let ended = archive.prompts.iter();
        let ended = ended.filter(|prompt| prompt.status == PromptStatus::Aborted);
        let mut steps = steps(archive, thread, &path);
        for prompt in ended {
            cut_without_words(prompt, &path, &mut steps);
        }
        Self {
            prompts,
            steps,
            results: results(&path),
            contexts: contexts.collect(),
        }
    }

    /// Whether a call of a tool was under way when its host died, and was not made again.
    pub(super) fn is_interrupted(&self, tool: &str) -> bool {
        self.results.values().any(|given| {
            matches!(given.parts.first(), Some(Part::ToolResult { status, tool: of, .. })
                if *status == ResultStatus::Interrupted && of == tool)
        })
    }

    /// Models that answered then and cannot be asked today.
    pub(super) fn missing_models(&self, models: &dyn Models) -> Vec<(String, String)> {
        let answered = self.steps.iter().filter_map(|step| match &step.did {
            Did::Answered(message, _) => message.model.clone(),
            _ => None,
        });
        let names: BTreeSet<_> = answered.collect();
        let missing = names.into_iter().filter_map(|name| {
            let why = models.get(&name).err()?;
            Some((name, why))
        });
        missing.collect()
    }
}

/// From the first entry of a thread to its last.
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

/// What models did on a path, in order.
pub(crate) fn steps(archive: &Archive, thread: &Thread, path: &[Entry]) -> Vec<Step> {
    let heard = Heard::of(archive, thread);
    let mut steps = Vec::new();
    for entry in path {
        let did = match &entry.kind {
            EntryKind::Message(message) if message.role == Role::Assistant => {
                Some(did(message, heard.usage.get(&entry.id).copied()))
            }
            EntryKind::Compaction {
                summary,
                without_media,
                ..
            } => Some(Did::Summed {
                summary: summary.clone(),
                too_long: *without_media,
            }),
            _ => None,
        };
        let prompt = &entry.prompt;
        let step = |did| Step {
            prompt: prompt.clone(),
            did,
        };
        steps.extend(did.map(step));
        let failed = heard.not_summed.iter().filter(|after| **after == entry.id);
        steps.extend(failed.map(|_| step(Did::NotSummed)));
    }
    steps
}

fn did(message: &Message, usage: Option<Usage>) -> Did {
    let error = message.parts.iter().find_map(|part| match part {
        Part::Error { error } => Some(error.clone()),
        _ => None,
    });
    if let Some(error) = error {
        return Did::Failed(error);
    }
    let message = Box::new(message.clone());
    if message.metadata.contains_key("aborted") {
        Did::Cut(message)
    } else {
        Did::Answered(message, usage.unwrap_or_default())
    }
}

/// What events say of entries, each of which is told when it is written.
#[derive(Default)]
struct Heard {
    /// What answers cost.
    usage: HashMap<EntryId, Usage>,
    /// Entries behind which the history could not be summed up.
    not_summed: Vec<EntryId>,
}

impl Heard {
    fn of(archive: &Archive, thread: &Thread) -> Self {
        let own = archive.events.iter();
        let own = own.filter(|event| event.thread.as_ref() == Some(&thread.id));
        let (mut heard, mut last) = (Self::default(), None);
        for event in own {
            match (&event.kind, &last) {
                (EventKind::MessageEnd { entry }, _) => last = Some(entry.clone()),
                (EventKind::Usage { usage }, Some(last)) => {
                    heard.usage.insert(last.clone(), *usage);
                }
                // Whoever was not asked for a sum is not asked again.
                (
                    EventKind::CompactionEnd {
                        error: Some(error), ..
                    },
                    Some(last),
                ) if error.code == ErrorCode::Model => {
                    heard.not_summed.push(last.clone());
                }
                _ => {}
            }
        }
        heard
    }
}

/// A prompt that somebody ended while a model was asked that had not said a word yet.
fn cut_without_words(prompt: &QueuedPrompt, path: &[Entry], steps: &mut Vec<Step>) {
    let own = |entry: &&Entry| entry.prompt.as_ref() == Some(&prompt.id);
    let Some(last) = path.iter().rfind(own) else {
        return;
    };
    let EntryKind::Message(message) = &last.kind else {
        return;
    };
    let is_told = message.role == Role::Assistant || ending(message).is_some();
    if is_told {
        return;
    }
    let of_prompt = |step: &Step| step.prompt.as_ref() == Some(&prompt.id);
    let after = steps.iter().rposition(of_prompt);
    // One without steps is the first of those that come later: its place says nothing.
    let at = after.map_or(steps.len(), |after| after + 1);
    let message = Box::new(Message::new(Role::Assistant, Vec::new()));
    let prompt = Some(prompt.id.clone());
    let did = Did::Cut(message);
    steps.insert(at, Step { prompt, did });
}

fn results(path: &[Entry]) -> HashMap<CallId, Given> {
    let (mut all, mut before) = (HashMap::new(), Vec::new());
    for entry in path {
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        match (message.role, message.parts.first()) {
            (Role::Tool, Some(Part::ToolResult { call_id, .. })) => {
                let given = Given {
                    parts: message.parts.clone(),
                    before: before.clone(),
                };
                before.push(call_id.clone());
                all.insert(call_id.clone(), given);
            }
            (Role::Assistant, _) => before.clear(),
            _ => {}
        }
    }
    all
}

/// How a call ended, if it has no result of its own.
pub(super) fn ending(message: &Message) -> Option<Ending> {
    message.parts.iter().find_map(ending_of)
}

pub(super) fn ending_of(part: &Part) -> Option<Ending> {
    let Part::ToolResult { status, text, .. } = part else {
        return None;
    };
    match status {
        ResultStatus::Interrupted => Some(Ending::Death),
        ResultStatus::Aborted if text.ends_with("steer") => Some(Ending::Steer),
        ResultStatus::Aborted if text.ends_with("limit") => Some(Ending::OutOfTime),
        ResultStatus::Aborted => Some(Ending::Abort),
        ResultStatus::Success | ResultStatus::Error => None,
    }
}

/// The prompts of a path, in order, and where a replay of them ends.
fn prompts(archive: &Archive, path: &[Entry]) -> Vec<RecordedPrompt> {
    let mut seen = BTreeSet::new();
    let order = path.iter().filter_map(|entry| entry.prompt.clone());
    let order = order.filter(|id| seen.insert(id.clone()));
    let known = order.filter_map(|id| archive.prompts.iter().find(|prompt| prompt.id == id));
    // What the engine asked by itself it asks again.
    let asked = known.filter(|prompt| !prompt.metadata.contains_key("compaction_continue"));
    asked.map(|prompt| self::prompt(prompt, path)).collect()
}

fn prompt(prompt: &QueuedPrompt, path: &[Entry]) -> RecordedPrompt {
    let of_prompt = path
        .iter()
        .filter(|it| it.prompt.as_ref() == Some(&prompt.id));
    let mut messages = of_prompt.filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message),
        _ => None,
    });
    let out_of_time = |message: &Message| ending(message) == Some(Ending::OutOfTime);
    let runs_out_of_time = messages.clone().any(out_of_time);
    let stops = (!prompt.status.is_finished()).then(|| {
        let start: String = prompt.content.chars().take(60).collect();
        format!("the replay ends before `{start}`: it is under way")
    });
    let first = messages.find_map(|message| message.model.clone());
    RecordedPrompt {
        id: prompt.id.clone(),
        content: prompt.content.clone(),
        attachments: prompt.attachments.clone(),
        author: prompt.author.clone(),
        // Another one may have answered in its place, or the role's.
        model: first.or_else(|| prompt.model.clone()),
        role: prompt.role.clone(),
        schema: prompt.metadata.get("result_schema").cloned(),
        runs_out_of_time,
        stops,
    }
}
