//! `thread_read`: a thread, a page at a time.

use rye_protocol::{Entry, EntryId, EntryKind, Message, Part, Role, SessionId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{failed, word};
use crate::BoxFuture;
use crate::builtin::parse;
use crate::history::{History, RelatedSession, Relation, page};
use crate::text::without_middle;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How many entries are shown where the model does not say, and at most.
const STANDARD: usize = 20;
const MOST: usize = 100;
/// How much of an entry is shown beside others, of arguments, and of all together.
const ENTRY: usize = 4000;
const ARGS: usize = 500;
const SHOWN: usize = 60_000;
/// The thread that prompts go to where they name none.
const DEFAULT: &str = "default";

/// Reads a thread of this session, of its parent, of its children or of those beside it, and
/// of no other.
#[derive(Debug)]
pub struct ThreadRead {
    def: ToolDef,
}

impl Default for ThreadRead {
    fn default() -> Self {
        let description = "Reads what was said and done in another thread, a page at a time, \
            the newest last: a thread of this session, of the one that asked for it, of another \
            of its tasks, or of a task that this session gave. `list_threads` names them. Long entries are cut; with `limit` 1 \
            one is shown whole.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "thread": { "type": "string", "minLength": 1, "description": "Its key or id; else `default`." },
                "session": { "type": "string", "minLength": 1, "description": "The id of its session, or `parent`; else this session." },
                "before": { "type": "string", "minLength": 1, "description": "The id of an entry: what stands before it is shown; else the end of the thread." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST, "description": "How many entries; else 20." },
            },
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("thread_read", description, parameters).effect(Effect::Pure),
        }
    }
}

#[derive(Deserialize)]
struct Args {
    thread: Option<String>,
    session: Option<String>,
    before: Option<EntryId>,
    limit: Option<usize>,
}

impl Tool for ThreadRead {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let history = context.history()?;
            let related = session(&history, args.session.as_deref(), &context).await?;
            let wanted = args.thread.as_deref().unwrap_or(DEFAULT);
            let is_it = |key: &str, id: &str| key == wanted || id == wanted;
            let mut threads = related.threads.iter();
            let thread = threads.find(|thread| is_it(&thread.key, thread.id.as_str()));
            let thread = thread.ok_or_else(|| {
                let keys: Vec<_> = related.threads.iter().map(|it| it.key.as_str()).collect();
                let message = format!(
                    "there is no thread {wanted}; there are: {}",
                    keys.join(", ")
                );
                ToolError::failed(message)
            })?;
            let path = history.path(&related, thread).await.map_err(failed)?;
            let limit = args.limit.unwrap_or(STANDARD);
            let found = page(&path, args.before.as_ref(), limit);
            let (entries, more) = found
                .ok_or_else(|| ToolError::failed("the entry of `before` is not in this thread"))?;
            Ok(show(entries, more, limit == 1))
        })
    }
}

/// The session that is meant. One that may not be read is, as far as is told, not there.
async fn session(
    history: &History,
    meant: Option<&str>,
    context: &ToolContext,
) -> Result<RelatedSession, ToolError> {
    let none = |id: &str| {
        ToolError::failed(format!(
            "there is no session {id} that can be read here: `list_threads` names those there are"
        ))
    };
    let id: SessionId = match meant {
        None => context.session.clone(),
        Some("parent") => {
            let all = history.related(0).await.map_err(failed)?;
            let mut all = all.into_iter();
            let parent = all.find(|it| it.relation == Relation::Parent);
            return parent.ok_or_else(|| ToolError::failed("this session has no parent"));
        }
        Some(id) => id.parse().map_err(|_| none(id))?,
    };
    let found = history.session(&id).await.map_err(failed)?;
    found.ok_or_else(|| none(id.as_str()))
}

fn show(entries: &[Entry], more: bool, whole: bool) -> ToolOutput {
    let mut texts = Vec::new();
    let (mut length, mut first) = (0, entries.len());
    // The newest are wanted most.
    for (at, entry) in entries.iter().enumerate().rev() {
        let mut text = describe(&entry.kind);
        if !whole {
            text = without_middle(&text, ENTRY, None);
        }
        length += text.len();
        if length > SHOWN && !texts.is_empty() {
            break;
        }
        texts.push(format!("[{}] {text}", entry.id));
        first = at;
    }
    let older = entries.get(first).filter(|_| more || first > 0);
    let older = older.map(|entry| entry.id.clone());
    if let Some(id) = &older {
        texts.push(format!(
            "[there is more before this: read it with before {id}]"
        ));
    }
    if texts.is_empty() {
        texts.push("[nothing was said here yet]".to_owned());
    }
    texts.reverse();
    ToolOutput {
        text: texts.join("\n"),
        data: json!({ "entries": entries.len() - first, "before": older }),
        attachments: Vec::new(),
    }
}

fn describe(kind: &EntryKind) -> String {
    match kind {
        EntryKind::Message(message) => describe_message(message),
        EntryKind::DecisionGate { title, .. } => format!("a person was asked: {title}"),
        EntryKind::Compaction { summary, .. } => format!("summary of what was before: {summary}"),
        EntryKind::CompactionUndone { .. } => "the summary was taken back".to_owned(),
        EntryKind::BranchSummary { summary, .. } => format!("summary of a branch: {summary}"),
    }
}

fn describe_message(message: &Message) -> String {
    let who = word(&message.role);
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::ToolCall { tool, args, .. } => {
            let args = without_middle(&args.to_string(), ARGS, None);
            Some(format!("calls {tool} {args}"))
        }
        Part::ToolResult {
            tool, status, text, ..
        } => Some(format!("{tool} ({}): {text}", word(status))),
        Part::Attachment {
            name, mime_type, ..
        } => Some(format!("[{name}, {mime_type}]")),
        Part::Error { error } => Some(format!("[error: {}]", error.message)),
        // What a model thought is its own.
        Part::Thinking { .. } => None,
    });
    let text = parts.collect::<Vec<_>>().join("\n");
    match message.role {
        Role::Tool => text,
        _ => format!("{who}: {text}"),
    }
}
