//! Typed access to the fields of a YAML mapping.

use std::fmt::Display;
use std::time::Duration;

use rye_items::metadata::{Data, Entry, Node};
use serde_json::Number;

use crate::condition::Condition;
use crate::problem::Problem;

/// A mapping in a graph file.
pub(crate) struct Fields<'n> {
    pub(super) at: usize,
    what: &'static str,
    entries: &'n [Entry],
}

/// Problem of a value with the wrong type.
pub(super) fn type_error(node: &Node, name: &str, expected: &str) -> Problem {
    wrong_type(node, name, expected, &node.kind())
}

/// Problem of a value that is not a number in the right range.
fn number_error(node: &Node, name: &str, expected: &str) -> Problem {
    match &node.data {
        Data::Number(number) => wrong_type(node, name, expected, number),
        _ => type_error(node, name, expected),
    }
}

fn wrong_type(node: &Node, name: &str, expected: &str, found: &dyn Display) -> Problem {
    let message = format!("`{name}` must be {expected}, not {found}");
    Problem::error(node.at, "wrong_type", message)
}

impl<'n> Fields<'n> {
    /// Reads a mapping that messages call `what`.
    pub(crate) fn parse(
        node: &'n Node,
        what: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let Data::Map(entries) = &node.data else {
            let message = format!("{what} must be a mapping, not {}", node.kind());
            problems.push(Problem::error(node.at, "wrong_type", message));
            return None;
        };
        let at = entries.first().map_or(node.at, |entry| entry.at);
        Some(Self { at, what, entries })
    }

    /// Changes the name that messages use.
    pub(super) fn named(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        let found = self.entries.iter().find(|entry| entry.key == name);
        found.map(|entry| &entry.value)
    }

    /// Reports unknown fields.
    pub(crate) fn check_known(&self, names: &[&str], problems: &mut Vec<Problem>) {
        for entry in self.entries {
            if !names.contains(&entry.key.as_str()) {
                let message = format!("{} has no field `{}`", self.what, entry.key);
                let problem = Problem::error(entry.at, "unknown_key", message);
                problems.push(problem.with_suggestion(&entry.key, names.iter().copied()));
            }
        }
    }

    pub(super) fn text(&self, name: &str, problems: &mut Vec<Problem>) -> Option<(usize, &'n str)> {
        let node = self.get(name)?;
        match &node.data {
            Data::Text(text) => Some((node.at, text)),
            Data::Null => None,
            _ => {
                problems.push(type_error(node, name, "a string"));
                None
            }
        }
    }

    pub(super) fn required_text(
        &self,
        name: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<(usize, &'n str)> {
        if self.get(name).is_none() {
            let message = format!("{} needs a field `{name}`", self.what);
            problems.push(Problem::error(self.at, "missing_key", message));
        }
        self.text(name, problems)
    }

    pub(super) fn list(&self, name: &str, problems: &mut Vec<Problem>) -> &'n [Node] {
        match self.get(name) {
            None => &[],
            Some(node) => match &node.data {
                Data::List(items) => items,
                Data::Null => &[],
                _ => {
                    problems.push(type_error(node, name, "a list"));
                    &[]
                }
            },
        }
    }

    pub(super) fn texts(&self, name: &str, problems: &mut Vec<Problem>) -> Vec<(usize, String)> {
        let mut all = Vec::new();
        for item in self.list(name, problems) {
            match &item.data {
                Data::Text(text) => all.push((item.at, text.clone())),
                _ => problems.push(type_error(item, name, "a list of strings")),
            }
        }
        all
    }

    pub(super) fn flag(&self, name: &str, problems: &mut Vec<Problem>) -> bool {
        match self.get(name).map(|node| (node, &node.data)) {
            None | Some((_, Data::Null)) => false,
            Some((_, Data::Bool(flag))) => *flag,
            Some((node, _)) => {
                problems.push(type_error(node, name, "true or false"));
                false
            }
        }
    }

    /// Reads an integer with a minimum.
    pub(super) fn integer(&self, name: &str, min: u64, problems: &mut Vec<Problem>) -> Option<u64> {
        let node = self.get(name)?;
        let number = match &node.data {
            Data::Number(number) => number.as_u64().filter(|number| *number >= min),
            _ => None,
        };
        if number.is_none() {
            let expected = format!("an integer of at least {min}");
            problems.push(number_error(node, name, &expected));
        }
        number
    }

    /// Reads a duration in seconds.
    pub(super) fn seconds(&self, name: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
        let node = self.get(name)?;
        let number = match &node.data {
            Data::Number(number) => Number::as_f64(number),
            _ => None,
        };
        let time = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if time.is_none() {
            problems.push(number_error(node, name, "a number of seconds, 0 or more"));
        }
        time
    }

    pub(super) fn condition(
        &self,
        name: &str,
        variable: Option<&str>,
        problems: &mut Vec<Problem>,
    ) -> Option<Condition> {
        Condition::parse(self.get(name)?, variable, problems)
    }
}
