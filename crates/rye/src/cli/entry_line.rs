//! One-line descriptions of history entries and decisions.

use rye_engine::arguments::edited_arguments;
use rye_engine::protocol::{
    ActionId, Entry, EntryKind, Gate, GateStatus, Message, Part, Resolution, Role, RunEvent,
};
use rye_host::TrustedKeys;
use serde_json::Value;

/// Describes an entry in one line.
pub(crate) fn line(entry: &Entry) -> String {
    match &entry.kind {
        EntryKind::Message(message) => message_line(message),
        EntryKind::DecisionGate { title, .. } => format!("gate       {title}"),
        EntryKind::Compaction {
            covered,
            tokens_before,
            tokens_after,
            ..
        } => format!(
            "compacted  {} entries, {tokens_before} tokens to {tokens_after}",
            covered.len()
        ),
        EntryKind::CompactionUndone { .. } => "compaction undone".to_owned(),
        EntryKind::BranchSummary { .. } => "branch abandoned".to_owned(),
        EntryKind::Run { events } => format!("graph      {}", RunEvent::summary(events)),
    }
}

/// Describes how a gate was closed, and by whom; `None` while it is pending.
pub(crate) fn describe_decision(gate: &Gate, keys: &TrustedKeys) -> Option<String> {
    let (outcome, at) = match &gate.status {
        GateStatus::Pending => return None,
        GateStatus::Resolved { resolution } => {
            let Resolution { action, source, .. } = resolution;
            let by = keys.approver(resolution);
            let decision = describe_action(action);
            let edited = match edited_by_decision(gate) {
                Some(args) => format!(", with edited arguments {}", first_line(&args.to_string())),
                None => String::new(),
            };
            (
                format!("{decision} by {by} ({source}){edited}"),
                resolution.at,
            )
        }
        GateStatus::Withdrawn { reason, at } => (format!("withdrawn ({reason})"), *at),
        GateStatus::Expired { at } => ("expired".to_owned(), *at),
    };
    let seconds = i64::try_from(at.0 / 1000).unwrap_or_default();
    Some(format!(
        "{outcome}, {}",
        lillux::time::format_rfc3339(seconds)
    ))
}

/// The arguments that the decision on a gate put in place of those of the call.
pub(crate) fn edited_by_decision(gate: &Gate) -> Option<&Value> {
    match &gate.status {
        GateStatus::Resolved { resolution } => edited_arguments(&gate.context, resolution),
        _ => None,
    }
}

/// Describes the action of a decision: `approve` becomes `approved`.
pub(crate) fn describe_action(action: &ActionId) -> String {
    match action {
        ActionId::Approve => "approved".to_owned(),
        ActionId::ApproveSession => "approved for the session".to_owned(),
        ActionId::ApprovePrefix => "approved for commands that start the same way".to_owned(),
        ActionId::ApproveProject => "approved for the project".to_owned(),
        ActionId::Deny => "denied".to_owned(),
        ActionId::Other(id) if id.is_empty() => "answered".to_owned(),
        other => format!("answered `{other}`"),
    }
}

/// Who wrote an entry, and its whole text.
pub(crate) fn full_text(entry: &Entry) -> (&'static str, String) {
    let message = match &entry.kind {
        EntryKind::Message(message) => message,
        EntryKind::Compaction { summary, .. } => return ("compacted", summary.clone()),
        EntryKind::BranchSummary { summary, .. } => return ("branch abandoned", summary.clone()),
        EntryKind::DecisionGate { title, .. } => return ("gate", title.clone()),
        EntryKind::CompactionUndone { .. } => return ("compaction undone", String::new()),
        EntryKind::Run { events } => return ("graph", RunEvent::summary(events)),
    };
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } | Part::ToolResult { text, .. } => text.clone(),
        Part::ToolCall { tool, args, .. } => format!("calls {tool} {args:#}"),
        Part::Error { error } => format!("error: {}", error.message),
        Part::Thinking { text, .. } if text.is_empty() => String::new(),
        Part::Thinking { text, .. } => format!("[thinking] {text}"),
        Part::Attachment {
            name, mime_type, ..
        } => format!("[{name}, {mime_type}]"),
    });
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    (role_name(message.role), parts.join("\n"))
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
    }
}

fn message_line(message: &Message) -> String {
    let role = role_name(message.role);
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } => first_line(text),
        // The mark says less than the line after it.
        Part::ToolResult { text, .. } => {
            first_line(text.strip_prefix("[stderr]\n").unwrap_or(text))
        }
        Part::ToolCall { tool, args, .. } => {
            format!("calls {tool} {}", first_line(&args.to_string()))
        }
        Part::Error { error } => format!("error: {}", error.message),
        Part::Thinking { .. } => String::new(),
        Part::Attachment { name, .. } => format!("[{name}]"),
    });
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let incomplete = match (message.incomplete, &message.stop_reason) {
        (Some(_), Some(reason)) => format!(" [incomplete: {reason}]"),
        _ => String::new(),
    };
    format!("{role:<10} {}{incomplete}", parts.join("; "))
}

/// The first line of a text, with `…` if there is more.
pub(crate) fn first_line(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let mut lines = text.trim().lines();
    let first: String = lines
        .next()
        .unwrap_or_default()
        .chars()
        .take(MAX_CHARS)
        .collect();
    if lines.next().is_some() || first.len() < text.trim().len() {
        format!("{first} …")
    } else {
        first
    }
}
