//! An entry of a history in a line, for people.

use rye_engine::protocol::{Entry, EntryKind, Gate, GateStatus, Message, Part, Resolution, Role};

/// An entry in a line.
pub(crate) fn line(entry: &Entry) -> String {
    match &entry.kind {
        EntryKind::Message(message) => spoken(message),
        EntryKind::DecisionGate { title, .. } => format!("gate       {title}"),
        EntryKind::Compaction {
            covered,
            tokens_before,
            tokens_after,
            ..
        } => format!(
            "summed up  {} entries, {tokens_before} tokens became {tokens_after}",
            covered.len()
        ),
        EntryKind::CompactionUndone { .. } => "summary taken back".to_owned(),
        EntryKind::BranchSummary { .. } => "branch left".to_owned(),
    }
}

/// How a gate ended, in a few words; none while it waits.
pub(crate) fn decided(gate: &Gate) -> Option<String> {
    let (how, at) = match &gate.status {
        GateStatus::Pending => return None,
        GateStatus::Resolved { resolution } => {
            let Resolution {
                action, by, source, ..
            } = resolution;
            let action = if action.is_empty() {
                "answered"
            } else {
                action
            };
            (format!("{action} by {by} ({source})"), resolution.at)
        }
        GateStatus::Withdrawn { reason, at } => (format!("withdrawn ({reason})"), *at),
        GateStatus::Expired { at } => ("expired".to_owned(), *at),
    };
    let seconds = i64::try_from(at.0 / 1000).unwrap_or_default();
    Some(format!("{how}, {}", lillux::time::seconds(seconds)))
}

fn spoken(message: &Message) -> String {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
    };
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } | Part::ToolResult { text, .. } => first_line(text),
        Part::ToolCall { tool, args, .. } => {
            format!("calls {tool} {}", first_line(&args.to_string()))
        }
        Part::Error { error } => format!("error: {}", error.message),
        Part::Thinking { .. } => String::new(),
        Part::Attachment { name, .. } => format!("[{name}]"),
    });
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let cut_off = match (message.incomplete_reason(), &message.stop_reason) {
        (Some(_), Some(why)) => format!(" [not whole: {why}]"),
        _ => String::new(),
    };
    format!("{role:<10} {}{cut_off}", parts.join("; "))
}

/// The first line of a text, and a sign where it goes on.
pub(crate) fn first_line(text: &str) -> String {
    const MOST: usize = 200;
    let mut lines = text.trim().lines();
    let first: String = lines
        .next()
        .unwrap_or_default()
        .chars()
        .take(MOST)
        .collect();
    if lines.next().is_some() || first.len() < text.trim().len() {
        format!("{first} …")
    } else {
        first
    }
}
