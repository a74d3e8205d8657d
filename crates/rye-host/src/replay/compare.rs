//! What differs between a record and its replay, so that a person can read it.

use std::collections::BTreeMap;

use rye_engine::protocol::{Archive, Entry, EntryKind, ModelContext, Thread, ToolDefinition};
use serde_json::{Value, json};

use super::Replayed;
use super::recorded::path;

/// How many lines of a difference are told.
const MOST: usize = 60;

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What.
    pub what: String,
    /// How: lines that were there with `-`, those that are there now with `+`.
    pub lines: Vec<String>,
}

/// Compares what came of prompts with what had come of them.
pub(super) fn entries(
    then: &Archive,
    thread: &Thread,
    now: &Archive,
    stops: bool,
    replayed: &mut Replayed,
) {
    let again = now.threads.iter().find(|it| it.key == thread.key);
    let now = again.map(|thread| path(now, thread)).unwrap_or_default();
    let then = path(then, thread);
    let then: Vec<_> = then.iter().filter_map(said).collect();
    let now: Vec<_> = now.iter().filter_map(said).collect();
    replayed.entries += now.len();
    for (number, now) in now.iter().enumerate() {
        let then = then.get(number);
        if then != Some(now) {
            let then = then.map(text).unwrap_or_default();
            replayed.differences.push(Difference {
                what: format!("entry {} of thread {}", number + 1, thread.key),
                lines: lines(&then, &text(now)),
            });
            // What follows from it differs too.
            return;
        }
    }
    // Where the replay stops, more was said.
    if let Some(missing) = then.get(now.len()).filter(|_| !stops) {
        replayed.differences.push(Difference {
            what: format!(
                "entry {} of thread {}, which is not there now",
                now.len() + 1,
                thread.key
            ),
            lines: lines(&text(missing), ""),
        });
    }
}

/// What an entry says, without what is another one each time.
fn said(entry: &Entry) -> Option<Value> {
    match &entry.kind {
        EntryKind::Message(message) => {
            let mut message = json!(message);
            // What is left out to save room is the same text.
            for part in message["parts"].as_array_mut().into_iter().flatten() {
                if let Some(part) = part.as_object_mut() {
                    part.remove("elided");
                }
                // Whose error it is has another id.
                if let Some(error) = part["error"].as_object_mut() {
                    error.remove("ids");
                }
            }
            Some(message)
        }
        // A sum that somebody asked for is not asked for again.
        _ => None,
    }
}

fn text(value: &Value) -> String {
    format!("{value:#}")
}

/// Compares what models are told beside the history with what they were told.
pub(super) fn prompts(then: &[ModelContext], now: &[ModelContext], replayed: &mut Replayed) {
    for (then, now) in then.iter().zip(now) {
        let mut add = |what: &str, then: &str, now: &str| {
            if then != now {
                replayed.differences.push(Difference {
                    what: what.to_owned(),
                    lines: lines(then, now),
                });
            }
        };
        add("the model", &then.model, &now.model);
        add("the system prompt", &then.system, &now.system);
        let by_name = |tools: &[ToolDefinition]| -> BTreeMap<String, String> {
            let tools = tools.iter();
            let shown = |it: &ToolDefinition| format!("{}\n{:#}", it.description, it.parameters);
            tools.map(|it| (it.name.clone(), shown(it))).collect()
        };
        let (then, now) = (by_name(&then.tools), by_name(&now.tools));
        let names: std::collections::BTreeSet<_> = then.keys().chain(now.keys()).collect();
        for name in names {
            let none = String::new();
            let was = then.get(name).unwrap_or(&none);
            let is = now.get(name).unwrap_or(&none);
            let what = match (then.contains_key(name), now.contains_key(name)) {
                (true, false) => format!("the removed tool {name}"),
                (false, true) => format!("the new tool {name}"),
                _ => format!("the tool {name}"),
            };
            add(&what, was, is);
        }
    }
}

/// The lines of one text that the other does not have, between what they have in common.
fn lines(then: &str, now: &str) -> Vec<String> {
    let (then, now): (Vec<_>, Vec<_>) = (then.lines().collect(), now.lines().collect());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let before = then.iter().zip(&now).take_while(same).count();
    let rest = then.len().min(now.len()) - before;
    let after = then.iter().rev().zip(now.iter().rev());
    let after = after.take_while(same).take(rest).count();
    let gone = &then[before..then.len() - after];
    let new = &now[before..now.len() - after];
    let gone = gone.iter().map(|line| format!("- {line}"));
    let new = new.iter().map(|line| format!("+ {line}"));
    let mut all: Vec<_> = gone.chain(new).collect();
    if all.len() > MOST {
        let left_out = all.len() - MOST;
        all.truncate(MOST);
        all.push(format!("… {left_out} more lines"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        assert_eq!(lines("a\nb\nc", "a\nx\ny\nc"), ["- b", "+ x", "+ y"]);
        assert_eq!(lines("a\nb", "a\nb\nc"), ["+ c"]);
        assert_eq!(lines("a\na", "a"), ["- a"]);
        assert_eq!(lines("", "a"), ["+ a"]);
        assert!(lines("a", "a").is_empty());
    }
}
