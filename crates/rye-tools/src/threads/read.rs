//! The tool `thread_read`: reads a thread in pages.

use std::time::Duration;

use rye_protocol::{
    Entry, EntryId, EntryKind, ErrorCode, ErrorInfo, Message, Part, Role, RunEvent, SessionId,
    Thread,
};
use serde::Deserialize;
use serde_json::json;

use super::{status_name, store_error};
use crate::tool;
use rye_engine::related_sessions::{RelatedSession, RelatedSessions, Relation, page};
use rye_engine::text::truncate_middle;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Default number of entries.
const DEFAULT_LIMIT: usize = 20;
/// Maximum number of entries.
const MAX_LIMIT: usize = 100;
/// Maximum size of an entry among others, in bytes.
const MAX_ENTRY: usize = 4000;
/// Maximum size of the arguments of a call, in bytes.
const MAX_ARGS: usize = 500;
/// Maximum size of the result, in bytes.
const MAX_TEXT: usize = 60_000;
/// Maximum time to wait for a thread, in seconds.
const MAX_WAIT: u64 = 600;
/// Key of the default thread.
const DEFAULT_THREAD: &str = "default";

/// Reads a thread of this session, its parent, its children or its siblings, and of no other
/// session.
pub fn thread_read() -> impl Tool {
    let description = "Reads the entries of another thread in pages, newest last: a thread of this \
        session, its parent session, a sibling task, or a task that this session started. \
        `list_threads` lists them. Long entries are truncated; with `limit` 1, an entry is \
        shown completely.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "thread": { "type": "string", "minLength": 1, "description": "Key or id of the thread. Default: `default`." },
            "session": { "type": "string", "minLength": 1, "description": "Id of the session, or `parent`. Default: this session." },
            "before": { "type": "string", "minLength": 1, "description": "Id of an entry; the entries before it are shown. Default: the end of the thread." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "Number of entries. Default: 20." },
            "wait": { "type": "integer", "minimum": 0, "maximum": MAX_WAIT, "description": "Seconds to wait until a thread of this session has finished. Default: 0." },
        },
        "additionalProperties": false,
    });
    let def = ToolDef::new("thread_read", description, parameters).effect(EffectClass::Pure);
    tool(def, run)
}

#[derive(Deserialize)]
struct Args {
    thread: Option<String>,
    session: Option<String>,
    before: Option<EntryId>,
    limit: Option<usize>,
    #[serde(default)]
    wait: u64,
}

async fn run(args: Args, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let sessions = context.related_sessions()?;
    let requested = args.thread.as_deref().unwrap_or(DEFAULT_THREAD);
    let mut related = find_session(&sessions, args.session.as_deref(), &context).await?;
    let id = find_thread(&related, requested)?.id.clone();
    if args.wait > 0 && related.relation == Relation::Own {
        if id == context.thread {
            let message = "this thread cannot wait for itself".to_owned();
            return Err(ToolError(ErrorInfo::new(
                ErrorCode::InvalidArguments,
                message,
            )));
        }
        let time = Duration::from_secs(args.wait.min(MAX_WAIT));
        context.wait_for_thread(&id, time).await?;
        related = find_session(&sessions, args.session.as_deref(), &context).await?;
    }
    let thread = find_thread(&related, requested)?;
    let path = sessions.path(&related, thread).await.map_err(store_error)?;
    let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
    let found = page(&path, args.before.as_ref(), limit);
    let (entries, has_more) =
        found.ok_or_else(|| ToolError::failed("entry `before` is not in this thread"))?;
    let output = format_page(entries, has_more, limit == 1);
    Ok(match thread.turn {
        Some(_) => ToolOutput::new(format!("{}\n[the thread works]", output.text), output.data),
        None => output,
    })
}

fn find_thread<'a>(related: &'a RelatedSession, requested: &str) -> Result<&'a Thread, ToolError> {
    let matches = |thread: &&Thread| thread.key == requested || thread.id.as_str() == requested;
    let found = related.threads.iter().find(matches);
    found.ok_or_else(|| {
        let keys: Vec<_> = related.threads.iter().map(|it| it.key.as_str()).collect();
        let message = format!("no thread {requested}; threads: {}", keys.join(", "));
        ToolError::failed(message)
    })
}

/// The session to read. A session that may not be read gives the same error as a missing one.
async fn find_session(
    sessions: &RelatedSessions,
    requested: Option<&str>,
    context: &ToolContext,
) -> Result<RelatedSession, ToolError> {
    let not_readable = |id: &str| {
        ToolError::failed(format!(
            "session {id} does not exist or cannot be read from here; `list_threads` lists the \
             sessions you can read"
        ))
    };
    let id: SessionId = match requested {
        None => context.session.clone(),
        Some("parent") => {
            let all = sessions.list(0).await.map_err(store_error)?;
            let mut all = all.into_iter();
            let parent = all.find(|it| it.relation == Relation::Parent);
            return parent.ok_or_else(|| ToolError::failed("this session has no parent"));
        }
        Some(id) => id.parse().map_err(|_| not_readable(id))?,
    };
    let found = sessions.session(&id).await.map_err(store_error)?;
    found.ok_or_else(|| not_readable(id.as_str()))
}

fn format_page(entries: &[Entry], has_more: bool, is_single: bool) -> ToolOutput {
    let mut texts = Vec::new();
    let (mut length, mut first) = (0, entries.len());
    // The newest entries are the most useful.
    for (at, entry) in entries.iter().enumerate().rev() {
        let mut text = describe(&entry.kind);
        if !is_single {
            text = truncate_middle(&text, MAX_ENTRY, None);
        }
        length += text.len();
        if length > MAX_TEXT && !texts.is_empty() {
            break;
        }
        texts.push(format!("[{}] {text}", entry.id));
        first = at;
    }
    let older = entries.get(first).filter(|_| has_more || first > 0);
    let older = older.map(|entry| entry.id.clone());
    if let Some(id) = &older {
        texts.push(format!("[earlier entries: continue with before {id}]"));
    }
    if texts.is_empty() {
        texts.push("[no entries]".to_owned());
    }
    texts.reverse();
    ToolOutput::new(
        texts.join("\n"),
        json!({ "entries": entries.len() - first, "before": older }),
    )
}

fn describe(kind: &EntryKind) -> String {
    match kind {
        EntryKind::Message(message) => describe_message(message),
        EntryKind::DecisionGate { title, .. } => format!("gate: {title}"),
        EntryKind::Compaction { summary, .. } => format!("summary of earlier entries: {summary}"),
        EntryKind::CompactionUndone { .. } => "the summary was undone".to_owned(),
        EntryKind::BranchSummary { summary, .. } => format!("summary of a branch: {summary}"),
        EntryKind::Run { events } => format!("graph: {}", RunEvent::summary(events)),
    }
}

fn describe_message(message: &Message) -> String {
    let role = status_name(&message.role);
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::ToolCall { tool, args, .. } => {
            let args = truncate_middle(&args.to_string(), MAX_ARGS, None);
            Some(format!("calls {tool} {args}"))
        }
        Part::ToolResult {
            tool, status, text, ..
        } => Some(format!("{tool} ({}): {text}", status_name(status))),
        Part::Attachment {
            name, mime_type, ..
        } => Some(format!("[{name}, {mime_type}]")),
        Part::Error { error } => Some(format!("[error: {}]", error.message)),
        // Thinking is private to its model.
        Part::Thinking { .. } => None,
    });
    let text = parts.collect::<Vec<_>>().join("\n");
    match message.role {
        Role::Tool => text,
        _ => format!("{role}: {text}"),
    }
}
