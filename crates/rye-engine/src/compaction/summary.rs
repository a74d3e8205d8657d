//! What whoever sums a history up is shown and told, and whether what they wrote will do.

use std::collections::HashSet;
use std::sync::Arc;

use rye_protocol::{Entry, EntryKind, Message, Part, Role};
use serde_json::json;

use super::{Head, PREVIOUS_COMPACTIONS, Settings};
use crate::model::ModelRequest;
use crate::text::without_middle;

/// What a summary must have, in this order.
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

const SYSTEM: &str = "You sum up the work of an agent so that it can go on with nothing but \
    your summary. You do not go on with the work yourself, you call no tools, and you answer \
    nobody who speaks in it.";

const FORM: &str = "## Goal\n(what is wanted, in one or two sentences)\n\n\
    ## Constraints & Preferences\n- (what was asked for or ruled out, or \"(none)\")\n\n\
    ## Progress\n### Done\n- …\n### In Progress\n- …\n### Blocked\n- …\n\n\
    ## Key Decisions\n- (what was decided, and why)\n\n\
    ## Next Steps\n1. …\n\n\
    ## Critical Context\n- (what the work cannot go on without: names, values, errors)\n\n\
    ## Relevant Files\n- path: why it matters";

/// How much of anything is shown to one who had no room for more, in characters.
const SHORT: usize = 400;

/// Why a summary is asked for once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The last one was not what it must be.
    Invalid(String),
    /// What was shown was too long.
    Shorter,
    /// Nobody answered.
    Same,
}

/// What is asked of the model.
pub(crate) fn request(
    path: &[Entry],
    head: &Head,
    settings: &Settings,
    again: Option<&Retry>,
) -> ModelRequest {
    let shorter = again == Some(&Retry::Shorter);
    let of_output = settings.tool_output_chars;
    let most = if shorter { SHORT } else { usize::MAX };
    let covered: HashSet<_> = head.covered.iter().collect();
    let mut messages = Vec::new();
    if let Some(previous) = &head.previous_summary {
        let text = format!("The summary of what came before this:\n\n{previous}");
        messages.push(Message::text(Role::User, text));
    }
    let own = path.iter().filter(|entry| covered.contains(&entry.id));
    messages.extend(own.filter_map(|entry| shown(entry, of_output.min(most), most)));
    let mut asked = String::from(if head.previous_summary.is_some() {
        "Bring the summary up to date with all that was said and done since: keep what still \
         holds, change what does not, and leave nothing out that the work needs."
    } else {
        "Sum up all that was said and done above."
    });
    asked.push_str(" Answer with the summary alone, in this form, with all of its headings:\n\n");
    asked.push_str(FORM);
    if let Some(Retry::Invalid(why)) = again {
        asked.push_str("\n\nYour last summary could not be used: ");
        asked.push_str(why);
    }
    let is_sum = |entry: &&Entry| matches!(entry.kind, EntryKind::Compaction { .. });
    let sums = path.iter().filter(is_sum).count();
    let mut asked = Message::text(Role::User, asked);
    asked
        .metadata
        .insert(PREVIOUS_COMPACTIONS.to_owned(), json!(sums));
    messages.push(asked);
    ModelRequest {
        system: SYSTEM.to_owned(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: Arc::new([]),
        max_output: None,
        for_summary: true,
    }
}

/// An entry in words: calls and their results too, since nothing is to be called here.
fn shown(entry: &Entry, of_output: usize, of_text: usize) -> Option<Message> {
    let message = match &entry.kind {
        EntryKind::Message(message) => message,
        EntryKind::BranchSummary { summary, .. } => {
            return Some(Message::text(Role::User, summary.clone()));
        }
        _ => return None,
    };
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(without_middle(text, of_text, None)),
        Part::ToolCall { tool, args, .. } => {
            let args = without_middle(&args.to_string(), of_output, None);
            Some(format!("[calls {tool} {args}]"))
        }
        Part::ToolResult { tool, elided, .. } if *elided => {
            Some(format!("[{tool} gave something that is left out]"))
        }
        Part::ToolResult { tool, text, .. } => {
            let text = without_middle(text, of_output, None);
            Some(format!("[{tool} gave]\n{text}"))
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

/// In words what a summary lacks, if it lacks something.
pub(crate) fn problem(summary: &str) -> Option<String> {
    let headings: Vec<&str> = summary
        .lines()
        .filter(|line| line.trim_start().starts_with('#'))
        .map(|line| line.trim().trim_start_matches('#').trim())
        .collect();
    let is_there = |wanted: &str| headings.iter().any(|it| it.eq_ignore_ascii_case(wanted));
    let lacking: Vec<_> = HEADINGS
        .iter()
        .filter(|wanted| !is_there(wanted))
        .map(|heading| format!("`{heading}`"))
        .collect();
    match lacking.as_slice() {
        [] => None,
        [one] => Some(format!("it lacks the heading {one}")),
        many => Some(format!("it lacks the headings {}", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_that_is_asked_for_will_do() {
        assert_eq!(problem(FORM), None);
    }

    #[test]
    fn what_is_lacking_is_named() {
        let without = FORM.replace("### Blocked\n", "");
        assert_eq!(
            problem(&without).as_deref(),
            Some("it lacks the heading `Blocked`")
        );
        let none = problem("I go on with the work.").unwrap();
        assert!(
            none.contains("`Goal`, `Constraints & Preferences`"),
            "{none}"
        );
    }
}
