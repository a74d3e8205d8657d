//! The fields of a mapping, in the types that they must have.

use std::time::Duration;

use rye_items::metadata::{Data, Entry, Node};
use serde_json::Number;

use crate::condition::Condition;
use crate::problem::Problem;

/// A mapping of the file.
pub(super) struct Fields<'n> {
    pub(super) at: usize,
    what: &'static str,
    entries: &'n [Entry],
}

/// A value of the wrong kind.
pub(super) fn kind_error(node: &Node, name: &str, wanted: &str) -> Problem {
    let message = match &node.data {
        // That it is a number is not what is wrong with it.
        Data::Number(number) if wanted.contains("number") => {
            format!("`{name}` is {wanted}, not {number}")
        }
        _ => format!("`{name}` is {wanted}, not {}", node.kind()),
    };
    Problem::error(node.at, "wrong_type", message)
}

impl<'n> Fields<'n> {
    pub(super) fn of(
        node: &'n Node,
        what: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let Data::Map(entries) = &node.data else {
            let message = format!("{what} is a mapping, not {}", node.kind());
            problems.push(Problem::error(node.at, "wrong_type", message));
            return None;
        };
        let at = entries.first().map_or(node.at, |entry| entry.at);
        Some(Self { at, what, entries })
    }

    /// The same under the name of what it turned out to be.
    pub(super) fn known_as(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        let found = self.entries.iter().find(|entry| entry.key == name);
        found.map(|entry| &entry.value)
    }

    /// Says which fields there are that nobody reads.
    pub(super) fn know(&self, names: &[&str], problems: &mut Vec<Problem>) {
        for entry in self.entries {
            if !names.contains(&entry.key.as_str()) {
                let message = format!("{} has no `{}`", self.what, entry.key);
                let problem = Problem::error(entry.at, "unknown_key", message);
                problems.push(problem.nearest(&entry.key, names.iter().copied()));
            }
        }
    }

    pub(super) fn text(&self, name: &str, problems: &mut Vec<Problem>) -> Option<(usize, &'n str)> {
        let node = self.get(name)?;
        match &node.data {
            Data::Text(text) => Some((node.at, text)),
            Data::Null => None,
            _ => {
                problems.push(kind_error(node, name, "a text"));
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
            let message = format!("{} needs `{name}`", self.what);
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
                    problems.push(kind_error(node, name, "a list"));
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
                _ => problems.push(kind_error(item, name, "a list of texts")),
            }
        }
        all
    }

    pub(super) fn flag(&self, name: &str, problems: &mut Vec<Problem>) -> bool {
        match self.get(name).map(|node| (node, &node.data)) {
            None | Some((_, Data::Null)) => false,
            Some((_, Data::Bool(flag))) => *flag,
            Some((node, _)) => {
                problems.push(kind_error(node, name, "true or false"));
                false
            }
        }
    }

    /// A whole number that is not below another.
    pub(super) fn whole(&self, name: &str, least: u64, problems: &mut Vec<Problem>) -> Option<u64> {
        let node = self.get(name)?;
        let number = match &node.data {
            Data::Number(number) => number.as_u64().filter(|number| *number >= least),
            _ => None,
        };
        if number.is_none() {
            let wanted = format!("a whole number of {least} or more");
            problems.push(kind_error(node, name, &wanted));
        }
        number
    }

    /// A number of seconds.
    pub(super) fn seconds(&self, name: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
        let node = self.get(name)?;
        let number = match &node.data {
            Data::Number(number) => Number::as_f64(number),
            _ => None,
        };
        let time = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if time.is_none() {
            problems.push(kind_error(node, name, "a number of seconds of 0 or more"));
        }
        time
    }

    pub(super) fn condition(
        &self,
        name: &str,
        variable: Option<&str>,
        problems: &mut Vec<Problem>,
    ) -> Option<Condition> {
        Condition::read(self.get(name)?, variable, problems)
    }
}
