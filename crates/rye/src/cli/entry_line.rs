//! An entry of a history in a line, for people.

use rye_engine::protocol::{Entry, EntryKind, Message, Part, Role};

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
    format!("{role:<10} {}", parts.join("; "))
}

fn first_line(text: &str) -> String {
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
