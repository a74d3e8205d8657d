//! Differences between a recorded session and its replay, as text.

use std::collections::BTreeMap;

use rye_engine::protocol::{
    Archive, Entry, EntryKind, ModelContext, Synthetic, Thread, ToolDefinition,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::ReplayOutcome;
use super::recording::path;

/// Maximum number of lines of a difference.
const MAX_LINES: usize = 60;

/// A difference between the recorded session and the replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The object that differs.
    pub subject: String,
    /// Recorded lines with `-`, new lines with `+`.
    pub lines: Vec<String>,
}

/// Compares the messages of a thread up to the first difference.
pub(super) fn entries(
    old: &Archive,
    thread: &Thread,
    new: &Archive,
    stops: bool,
    outcome: &mut ReplayOutcome,
) {
    let new_thread = new.threads.iter().find(|it| it.key == thread.key);
    let new = new_thread
        .map(|thread| path(new, thread))
        .unwrap_or_default();
    let old = path(old, thread);
    let old: Vec<_> = old.iter().filter_map(comparable).collect();
    let new: Vec<_> = new.iter().filter_map(comparable).collect();
    outcome.entries += new.len();
    for (number, new) in new.iter().enumerate() {
        let old = old.get(number);
        if old != Some(new) {
            let old = old.map(text).unwrap_or_default();
            outcome.differences.push(Difference {
                subject: format!("entry {} of thread {}", number + 1, thread.key),
                lines: lines(&old, &text(new)),
            });
            // Later entries usually differ as a consequence.
            return;
        }
    }
    // Unless the replay stopped early, entries are missing.
    if let Some(missing) = old.get(new.len()).filter(|_| !stops) {
        outcome.differences.push(Difference {
            subject: format!(
                "entry {} of thread {}, which is missing now",
                new.len() + 1,
                thread.key
            ),
            lines: lines(&text(missing), ""),
        });
    }
}

/// The content of a message without fields that always differ. None for other entries: a
/// compaction that a user requested is not repeated, and neither is a review.
fn comparable(entry: &Entry) -> Option<Value> {
    match &entry.kind {
        // There are no changes to review or to undo.
        EntryKind::Message(message)
            if matches!(message.synthetic, Some(Synthetic::Review | Synthetic::Undo)) =>
        {
            None
        }
        EntryKind::Message(message) => {
            let mut message = json!(message);
            for part in message["parts"].as_array_mut().into_iter().flatten() {
                // Pruning may happen at another time.
                if let Some(part) = part.as_object_mut() {
                    part.remove("elided");
                }
                // Ids differ.
                if let Some(error) = part["error"].as_object_mut() {
                    error.remove("ids");
                }
            }
            Some(message)
        }
        _ => None,
    }
}

fn text(value: &Value) -> String {
    format!("{value:#}")
}

/// Compares models, system prompts and tools.
pub(super) fn contexts(old: &[ModelContext], new: &[ModelContext], outcome: &mut ReplayOutcome) {
    for (old, new) in old.iter().zip(new) {
        let mut add = |subject: &str, old: &str, new: &str| {
            if old != new {
                outcome.differences.push(Difference {
                    subject: subject.to_owned(),
                    lines: lines(old, new),
                });
            }
        };
        add("model", &old.model, &new.model);
        add("system prompt", &old.system, &new.system);
        let by_name = |tools: &[ToolDefinition]| -> BTreeMap<String, String> {
            let tools = tools.iter();
            let text =
                |tool: &ToolDefinition| format!("{}\n{:#}", tool.description, tool.parameters);
            tools.map(|tool| (tool.name.clone(), text(tool))).collect()
        };
        let (old, new) = (by_name(&old.tools), by_name(&new.tools));
        let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for name in names {
            let none = String::new();
            let old_text = old.get(name).unwrap_or(&none);
            let new_text = new.get(name).unwrap_or(&none);
            let subject = match (old.contains_key(name), new.contains_key(name)) {
                (true, false) => format!("removed tool {name}"),
                (false, true) => format!("new tool {name}"),
                _ => format!("tool {name}"),
            };
            add(&subject, old_text, new_text);
        }
    }
}

/// The differing lines between the common start and the common end of two texts.
pub(super) fn lines(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let before = old.iter().zip(&new).take_while(same).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev());
    let after = after.take_while(same).take(rest).count();
    let removed = &old[before..old.len() - after];
    let added = &new[before..new.len() - after];
    let removed = removed.iter().map(|line| format!("- {line}"));
    let added = added.iter().map(|line| format!("+ {line}"));
    let mut all: Vec<_> = removed.chain(added).collect();
    if all.len() > MAX_LINES {
        let omitted = all.len() - MAX_LINES;
        all.truncate(MAX_LINES);
        all.push(format!("… {omitted} more lines"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differing_lines_are_listed() {
        assert_eq!(lines("a\nb\nc", "a\nx\ny\nc"), ["- b", "+ x", "+ y"]);
        assert_eq!(lines("a\nb", "a\nb\nc"), ["+ c"]);
        assert_eq!(lines("a\na", "a"), ["- a"]);
        assert_eq!(lines("", "a"), ["+ a"]);
        assert!(lines("a", "a").is_empty());
    }
}
