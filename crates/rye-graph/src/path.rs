//! Paths into the data of a run: `state.a.0.b`, `inputs.x`, `result.y`, a foreach variable.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::problem::nearest;

/// First component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Root {
    State,
    Inputs,
    Result,
    /// The variable of the enclosing foreach.
    Variable,
    /// `_now`: the current time as an ISO 8601 string.
    Now,
    /// `_timestamp`: the current time in milliseconds.
    Timestamp,
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) root: Root,
    pub(crate) steps: Vec<String>,
    pub(crate) text: String,
}

/// Names that a path may start with, besides the foreach variable.
pub(crate) const ROOTS: [&str; 5] = ["state", "inputs", "result", "_now", "_timestamp"];

impl Path {
    /// Parses a path. The error is a message and the most similar valid name.
    pub(crate) fn parse(
        text: &str,
        variable: Option<&str>,
    ) -> Result<Self, (String, Option<String>)> {
        let text = text.trim();
        let mut steps = text.split('.').map(str::to_owned);
        let first = steps.next().unwrap_or_default();
        let root = match first.as_str() {
            "state" => Root::State,
            "inputs" => Root::Inputs,
            "result" => Root::Result,
            "_now" => Root::Now,
            "_timestamp" => Root::Timestamp,
            other if Some(other) == variable => Root::Variable,
            other => {
                let names = ROOTS.into_iter().chain(variable);
                let near = nearest(other, names).map(str::to_owned);
                let all: Vec<_> = ROOTS.into_iter().chain(variable).collect();
                let message = format!("`{text}` must start with one of {}", all.join(", "));
                return Err((message, near));
            }
        };
        let steps: Vec<_> = steps.collect();
        if steps.iter().any(String::is_empty) {
            return Err((format!("`{text}` has an empty component"), None));
        }
        Ok(Self {
            root,
            steps,
            text: text.to_owned(),
        })
    }

    /// The path with only the first components after the root.
    fn truncated(&self, count: usize) -> Self {
        let text = self.text.split('.').take(count + 1);
        Self {
            root: self.root.clone(),
            steps: self.steps[..count].to_vec(),
            text: text.collect::<Vec<_>>().join("."),
        }
    }

    /// The state key that the path reads, if any.
    pub(crate) fn state_key(&self) -> Option<&str> {
        let key = self.steps.first()?;
        (self.root == Root::State).then_some(key)
    }
}

/// Data that expressions can refer to.
pub(crate) struct Scope<'a> {
    pub(crate) state: &'a Map<String, Value>,
    pub(crate) inputs: &'a Value,
    pub(crate) result: Option<&'a Value>,
    pub(crate) variable: Option<(&'a str, &'a Value)>,
    /// Warnings about paths without a value.
    pub(crate) missing: RefCell<Vec<String>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(state: &'a Map<String, Value>, inputs: &'a Value) -> Self {
        Self {
            state,
            inputs,
            result: None,
            variable: None,
            missing: RefCell::default(),
        }
    }

    pub(crate) fn with_result(mut self, result: &'a Value) -> Self {
        self.result = Some(result);
        self
    }

    pub(crate) fn with_variable(mut self, name: &'a str, value: &'a Value) -> Self {
        self.variable = Some((name, value));
        self
    }

    /// The value at a path, if it is stored (not computed like `_now`).
    pub(crate) fn find(&self, path: &Path) -> Option<&'a Value> {
        let mut steps = path.steps.iter();
        let mut value = match path.root {
            Root::State => match steps.next() {
                Some(key) => self.state.get(key)?,
                None => return None,
            },
            Root::Inputs => self.inputs,
            Root::Result => self.result?,
            Root::Variable => self.variable?.1,
            Root::Now | Root::Timestamp => return None,
        };
        for step in steps {
            value = child(value, step)?;
        }
        Some(value)
    }

    /// A copy of the value at a path.
    pub(crate) fn get(&self, path: &Path) -> Option<Value> {
        match path.root {
            Root::Now => Some(lillux::time::now().iso.into()),
            Root::Timestamp => Some(lillux::time::now().epoch_ms.into()),
            Root::State if path.steps.is_empty() => Some(Value::Object(self.state.clone())),
            _ => self.find(path).cloned(),
        }
    }

    /// Records a warning about a path without a value, with the most similar path.
    pub(crate) fn record_missing(&self, path: &Path) {
        let mut message = format!("`{}` has no value", path.text);
        if let Some(near) = self.nearest(path) {
            message = format!("{message}; did you mean `{near}`?");
        }
        self.missing.borrow_mut().push(message);
    }

    /// The path up to its first missing component, which is replaced by the most similar one.
    fn nearest(&self, path: &Path) -> Option<String> {
        let exists = |count: &usize| self.get(&path.truncated(*count)).is_some();
        let count = (0..path.steps.len()).take_while(exists).last()?;
        let parent = path.truncated(count);
        let near = match self.get(&parent)? {
            Value::Object(fields) => {
                nearest(&path.steps[count], fields.keys().map(String::as_str))?.to_owned()
            }
            Value::Array(items) if !items.is_empty() => (items.len() - 1).to_string(),
            _ => return Some(parent.text),
        };
        Some(format!("{}.{near}", parent.text))
    }
}

fn child<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    }
}
