//! The request for a summary, and the validation of the summary.

use std::collections::HashSet;
use std::sync::Arc;

use rye_protocol::{Entry, EntryKind, Message, Part, Role};

use super::{Head, Settings};
use crate::model::ModelRequest;
use crate::text::truncate_middle;

/// Headings that a summary must have, in this order.
pub(crate) const HEADINGS: [&str; 10] = [
    "Goal",
    "Constraints & Preferences",
    "Progress",
    "Done",
    "In Progress",
    "Blocked",
    "Key Decisions",
    "Next Steps",
    "Critical Context",
    "Relevant Files",
];

const SYSTEM: &str = "You summarise the work of an agent so that it can continue with only your \
    summary. Do not continue the work yourself, do not call tools, and do not answer messages in \
    the history.";

const TEMPLATE: &str = "## Goal\n(one or two sentences)\n\n\
    ## Constraints & Preferences\n- (requirements and exclusions, or \"(none)\")\n\n\
    ## Progress\n### Done\n- …\n### In Progress\n- …\n### Blocked\n- …\n\n\
    ## Key Decisions\n- (decision and reason)\n\n\
    ## Next Steps\n1. …\n\n\
    ## Critical Context\n- (essential names, values, errors)\n\n\
    ## Relevant Files\n- path: why it matters";

/// Maximum length of each text in a shortened request, in characters.
const SHORT_TEXT: usize = 400;

/// Why a summary is requested again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The last summary was invalid.
    Invalid(String),
    /// The request was too long for the model.
    Shorter,
    /// The model did not answer.
    Same,
}

/// Builds the request for a summary.
pub(crate) fn request(
    path: &[Entry],
    head: &Head,
    settings: &Settings,
    retry: Option<&Retry>,
) -> ModelRequest {
    let is_shortened = retry == Some(&Retry::Shorter);
    let max_output = settings.tool_output_chars;
    let max_text = if is_shortened { SHORT_TEXT } else { usize::MAX };
    let covered: HashSet<_> = head.covered.iter().collect();
    let mut messages = Vec::new();
    if let Some(previous) = &head.previous_summary {
        let text = format!("Summary of the earlier history:\n\n{previous}");
        messages.push(Message::text(Role::User, text));
    }
    let entries = path.iter().filter(|entry| covered.contains(&entry.id));
    messages.extend(entries.filter_map(|entry| as_text(entry, max_output.min(max_text), max_text)));
    let mut instruction = String::from(if head.previous_summary.is_some() {
        "Update the summary with everything that happened since: keep what still applies, change \
         what does not, and omit nothing that the work needs."
    } else {
        "Summarise the history above."
    });
    instruction.push_str(" Answer with the summary only, in this format, with all headings:\n\n");
    instruction.push_str(TEMPLATE);
    if let Some(Retry::Invalid(why)) = retry {
        instruction.push_str("\n\nYour last summary was rejected: ");
        instruction.push_str(why);
    }
    let is_compaction = |entry: &&Entry| matches!(entry.kind, EntryKind::Compaction { .. });
    let compactions = path.iter().filter(is_compaction).count();
    messages.push(Message::text(Role::User, instruction));
    ModelRequest {
        system: SYSTEM.to_owned(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::new([]),
        max_output: None,
        for_summary: true,
        previous_compactions: compactions,
        compacted_answers: 0,
    }
}

/// An entry as plain text, including calls and results.
fn as_text(entry: &Entry, max_output: usize, max_text: usize) -> Option<Message> {
    let message = match &entry.kind {
        EntryKind::Message(message) => message,
        EntryKind::BranchSummary { summary, .. } => {
            return Some(Message::text(Role::User, summary.clone()));
        }
        _ => return None,
    };
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(truncate_middle(text, max_text, None)),
        Part::ToolCall { tool, args, .. } => {
            let args = truncate_middle(&args.to_string(), max_output, None);
            Some(format!("[calls {tool} {args}]"))
        }
        Part::ToolResult { tool, elided, .. } if *elided => {
            Some(format!("[{tool} returned output that is omitted]"))
        }
        Part::ToolResult { tool, text, .. } => {
            let text = truncate_middle(text, max_output, None);
            Some(format!("[{tool} returned]\n{text}"))
        }
        Part::Attachment {
            name, mime_type, ..
        } => Some(format!("[{name}, {mime_type}]")),
        Part::Thinking { .. } | Part::Error { .. } => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    let role = match message.role {
        Role::Assistant => Role::Assistant,
        Role::User | Role::Tool | Role::System => Role::User,
    };
    (!text.trim().is_empty()).then(|| Message::text(role, text))
}

/// Error message if headings are missing.
pub(crate) fn problem(summary: &str) -> Option<String> {
    let headings: Vec<&str> = summary
        .lines()
        .filter(|line| line.trim_start().starts_with('#'))
        .map(|line| line.trim().trim_start_matches('#').trim())
        .collect();
    let has_heading = |heading: &str| headings.iter().any(|it| it.eq_ignore_ascii_case(heading));
    let missing: Vec<_> = HEADINGS
        .iter()
        .filter(|heading| !has_heading(heading))
        .map(|heading| format!("`{heading}`"))
        .collect();
    match missing.as_slice() {
        [] => None,
        [one] => Some(format!("missing heading {one}")),
        many => Some(format!("missing headings {}", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_a_valid_summary() {
        assert_eq!(problem(TEMPLATE), None);
    }

    #[test]
    fn missing_headings_are_named() {
        let without = TEMPLATE.replace("### Blocked\n", "");
        assert_eq!(
            problem(&without).as_deref(),
            Some("missing heading `Blocked`")
        );
        let none = problem("I go on with the work.").unwrap();
        assert!(
            none.contains("`Goal`, `Constraints & Preferences`"),
            "{none}"
        );
    }
}
