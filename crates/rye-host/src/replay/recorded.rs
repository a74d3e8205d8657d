//! What was recorded, given again: the answers of models and the results of tools.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_engine::compaction::ANSWERS;
use rye_engine::guides::{Found, Guides, Role, Skill};
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::protocol::{
    Archive, Author, CallId, Entry, EntryKind, EventKind, ItemStatus, Message, Part, Prompted,
    QueueItem, ResultStatus, Thread, Usage,
};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::Later;
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use serde_json::Value;

/// A prompt that is asked again.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) content: String,
    pub(super) attachments: Vec<Part>,
    pub(super) author: Option<Author>,
    pub(super) model: Option<String>,
    pub(super) role: Option<String>,
    pub(super) schema: Option<Value>,
    /// Why the replay ends before it.
    pub(super) stops: Option<String>,
}

/// What a thread's record has for its replay.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) items: Vec<Item>,
    answers: Vec<(Message, Usage)>,
    summaries: Vec<String>,
    results: HashMap<CallId, Vec<Part>>,
    prompts: Vec<Prompted>,
    asked_to_sum_up: AtomicUsize,
}

impl Recorded {
    pub(super) fn of(archive: &Archive, thread: &Thread) -> Self {
        let path = path(archive, thread);
        let own = archive.events.iter();
        let own = own.filter(|event| event.thread.as_ref() == Some(&thread.id));
        let mut usage = own.clone().filter_map(|event| match &event.kind {
            EventKind::Usage { usage } => Some(*usage),
            _ => None,
        });
        let prompts = own.filter_map(|event| match &event.kind {
            EventKind::Prompted { prompted } => Some((**prompted).clone()),
            _ => None,
        });
        let mut recorded = Self {
            prompts: prompts.collect(),
            ..Self::default()
        };
        for entry in &path {
            match &entry.kind {
                EntryKind::Message(message) if is_answer(message) => {
                    let usage = usage.next().unwrap_or_default();
                    recorded.answers.push((message.clone(), usage));
                }
                EntryKind::Message(message) => {
                    if let Some(Part::ToolResult { call_id, .. }) = message.parts.first() {
                        let parts = message.parts.clone();
                        recorded.results.insert(call_id.clone(), parts);
                    }
                }
                EntryKind::Compaction { summary, .. } => recorded.summaries.push(summary.clone()),
                _ => {}
            }
        }
        recorded.items = items(archive, &path);
        recorded
    }

    /// Models that answered then and cannot be asked today.
    pub(super) fn missing_models(&self, models: &dyn Models) -> Vec<(String, String)> {
        let names = self.answers.iter().filter_map(|(it, _)| it.model.clone());
        let names: BTreeSet<_> = names.collect();
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

fn is_answer(message: &Message) -> bool {
    let speaks = |part: &Part| !matches!(part, Part::Error { .. });
    message.role == rye_engine::protocol::Role::Assistant && message.parts.iter().any(speaks)
}

/// The prompts of a path, in order, and where a replay of them ends.
fn items(archive: &Archive, path: &[Entry]) -> Vec<Item> {
    let mut seen = BTreeSet::new();
    let order = path.iter().filter_map(|entry| entry.item.clone());
    let order = order.filter(|id| seen.insert(id.clone()));
    let known = order.filter_map(|id| archive.items.iter().find(|item| item.id == id));
    // What the engine asked by itself it asks again.
    let asked = known.filter(|item| !item.metadata.contains_key("compaction_continue"));
    asked.map(|item| self::item(item, path)).collect()
}

fn item(item: &QueueItem, path: &[Entry]) -> Item {
    let of_item = path.iter().filter(|it| it.item.as_ref() == Some(&item.id));
    let messages = of_item.filter_map(|entry| match &entry.kind {
        EntryKind::Message(message) => Some(message),
        _ => None,
    });
    let lost = |message: &Message| {
        message.parts.iter().any(|part| match part {
            Part::ToolResult { status, .. } => {
                matches!(status, ResultStatus::Interrupted | ResultStatus::Aborted)
            }
            _ => false,
        })
    };
    let stops = match item.status {
        ItemStatus::Done if messages.clone().any(lost) => {
            Some("a call of it was interrupted".to_owned())
        }
        ItemStatus::Done => None,
        ItemStatus::Failed => Some("it failed".to_owned()),
        ItemStatus::Aborted => Some("somebody ended it".to_owned()),
        ItemStatus::Waiting | ItemStatus::Running => Some("it is under way".to_owned()),
    };
    let stops = stops.map(|why| {
        let start: String = item.content.chars().take(60).collect();
        format!("the replay ends before `{start}`: {why}")
    });
    let mut messages = messages;
    let first = messages.find_map(|message| message.model.clone());
    Item {
        content: item.content.clone(),
        attachments: item.attachments.clone(),
        author: item.author.clone(),
        // Another one may have answered in its place, or the role's.
        model: first.or_else(|| item.model.clone()),
        role: item.role.clone(),
        schema: item.metadata.get("result_schema").cloned(),
        stops,
    }
}

/// Models that answer as they did.
pub(super) struct Answers(pub(super) Arc<Recorded>);

impl Models for Answers {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let recorded = Arc::clone(&self.0);
        let name = name.to_owned();
        Ok(Arc::new(Answering { recorded, name }))
    }

    fn default_name(&self) -> String {
        let first = self.0.answers.first();
        let name = first.and_then(|(message, _)| message.model.clone());
        name.unwrap_or_default()
    }
}

struct Answering {
    recorded: Arc<Recorded>,
    name: String,
}

impl Model for Answering {
    fn info(&self) -> ModelInfo {
        let prompts = self.recorded.prompts.iter();
        let known = prompts.rev().find(|prompted| prompted.model == self.name);
        ModelInfo {
            context_window: known.map_or(u64::MAX, |it| it.context_window),
            max_output: known.map_or(1, |it| it.max_output),
            images: true,
        }
    }

    fn call(&self, request: ModelRequest, _: Deltas) -> Later<'_, Result<ModelAnswer, ModelError>> {
        Box::pin(async move {
            let recorded = &self.recorded;
            let none = || ModelError::Refused("the record has no further answer".to_owned());
            if request.for_summary {
                let number = recorded.asked_to_sum_up.fetch_add(1, Ordering::Relaxed);
                let text = recorded.summaries.get(number).cloned().ok_or_else(none)?;
                return Ok(ModelAnswer {
                    parts: vec![Part::Text { text }],
                    stop_reason: None,
                    usage: Usage::default(),
                });
            }
            let number = request.messages.iter().map(|it| answers(it)).sum::<usize>();
            let (message, usage) = recorded.answers.get(number).cloned().ok_or_else(none)?;
            Ok(ModelAnswer {
                parts: message.parts,
                stop_reason: message.stop_reason,
                usage,
            })
        })
    }
}

/// How many answers a message is: those too that it sums up.
fn answers(message: &Message) -> usize {
    let summed_up = message.metadata.get(ANSWERS).and_then(Value::as_u64);
    let summed_up = usize::try_from(summed_up.unwrap_or_default()).unwrap_or_default();
    summed_up + usize::from(is_answer(message))
}

/// A tool that gives what it gave.
pub(super) struct RecordedTool {
    def: ToolDef,
    recorded: Arc<Recorded>,
}

impl RecordedTool {
    pub(super) fn new(mut def: ToolDef, recorded: Arc<Recorded>) -> Self {
        def.is_task = false;
        def.timeout = None;
        Self { def, recorded }
    }
}

impl Tool for RecordedTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> Later<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Some(parts) = self.recorded.results.get(&context.call) else {
                return Err(ToolError::failed("the record has no result of this call"));
            };
            let mut parts = parts.iter().cloned();
            match parts.next() {
                Some(Part::ToolResult {
                    status: ResultStatus::Success,
                    text,
                    data,
                    ..
                }) => Ok(ToolOutput {
                    text,
                    data,
                    attachments: parts.collect(),
                }),
                Some(Part::ToolResult {
                    error: Some(error), ..
                }) => Err(ToolError(error)),
                _ => Err(ToolError::failed("the record has no result of this call")),
            }
        })
    }
}

/// The guides of today.
pub(super) struct Today(pub(super) Arc<dyn Guides>);

impl Guides for Today {
    fn role<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> Found<'a, Role> {
        self.0.role(name, sandbox)
    }

    fn skill<'a>(&'a self, name: &'a str, sandbox: &'a dyn Sandbox) -> Found<'a, Skill> {
        self.0.skill(name, sandbox)
    }

    fn skills<'a>(&'a self, sandbox: &'a dyn Sandbox) -> Later<'a, Vec<Skill>> {
        self.0.skills(sandbox)
    }

    fn rules<'a>(&'a self, sandbox: &'a dyn Sandbox) -> Later<'a, Option<String>> {
        self.0.rules(sandbox)
    }
}
