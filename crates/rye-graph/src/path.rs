//! Paths into what a run knows: `state.a.0.b`, `inputs.x`, `result.y`, a foreach variable.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::problem::nearest;

/// Where a path begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Root {
    State,
    Inputs,
    Result,
    /// The variable of the foreach around it.
    Variable,
    /// `_now`: the time as a text.
    Now,
    /// `_timestamp`: the time as milliseconds.
    Timestamp,
}

/// A path, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) root: Root,
    pub(crate) steps: Vec<String>,
    pub(crate) text: String,
}

/// The names that a path may begin with, beside the foreach variable.
pub(crate) const ROOTS: [&str; 5] = ["state", "inputs", "result", "_now", "_timestamp"];

impl Path {
    /// Reads a path. The error is what is wrong, and the name that was probably meant.
    pub(crate) fn read(
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
                let message = format!(
                    "`{text}` begins with none of the names there are: {}",
                    all.join(", ")
                );
                return Err((message, near));
            }
        };
        let steps: Vec<_> = steps.collect();
        if steps.iter().any(String::is_empty) {
            return Err((format!("`{text}` has an empty part"), None));
        }
        Ok(Self {
            root,
            steps,
            text: text.to_owned(),
        })
    }

    /// The key of the state that it reads, if it reads one.
    pub(crate) fn state_key(&self) -> Option<&str> {
        let key = self.steps.first()?;
        (self.root == Root::State).then_some(key)
    }
}

/// What a run knows at one moment.
pub(crate) struct Scope<'a> {
    pub(crate) state: &'a Map<String, Value>,
    pub(crate) inputs: &'a Value,
    pub(crate) result: Option<&'a Value>,
    pub(crate) variable: Option<(&'a str, &'a Value)>,
    /// What resolved to nothing.
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

    pub(crate) fn result(mut self, result: &'a Value) -> Self {
        self.result = Some(result);
        self
    }

    pub(crate) fn variable(mut self, name: &'a str, value: &'a Value) -> Self {
        self.variable = Some((name, value));
        self
    }

    /// What is at a path that leads to something that is kept.
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

    /// What is at a path, of which a copy is made.
    pub(crate) fn get(&self, path: &Path) -> Option<Value> {
        match path.root {
            Root::Now => Some(lillux::time::now().iso.into()),
            Root::Timestamp => Some(lillux::time::now().epoch_ms.into()),
            Root::State if path.steps.is_empty() => Some(Value::Object(self.state.clone())),
            _ => self.find(path).cloned(),
        }
    }

    /// Notes that a path leads to nothing, with the nearest that leads to something.
    pub(crate) fn note_missing(&self, path: &Path) {
        let mut message = format!("`{}` is nothing here", path.text);
        if let Some(near) = self.nearest(path) {
            message = format!("{message}; the nearest is `{near}`");
        }
        self.missing.borrow_mut().push(message);
    }

    fn nearest(&self, path: &Path) -> Option<String> {
        let mut walked = path.text.split('.').next()?.to_owned();
        let mut steps = path.steps.iter();
        let mut value = None;
        if path.root == Root::State {
            let key = steps.next()?;
            let Some(found) = self.state.get(key) else {
                let near = nearest(key, self.state.keys().map(String::as_str))?;
                return Some(format!("{walked}.{near}"));
            };
            value = Some(found);
            walked = format!("{walked}.{key}");
        }
        let mut value = match path.root {
            Root::Inputs => self.inputs,
            Root::Result => self.result?,
            Root::Variable => self.variable?.1,
            _ => value?,
        };
        for step in steps {
            match child(value, step) {
                Some(found) => value = found,
                None => {
                    return match value {
                        Value::Object(fields) => {
                            let near = nearest(step, fields.keys().map(String::as_str))?;
                            Some(format!("{walked}.{near}"))
                        }
                        Value::Array(items) if !items.is_empty() => {
                            Some(format!("{walked}.{}", items.len() - 1))
                        }
                        _ => Some(walked),
                    };
                }
            }
            walked = format!("{walked}.{step}");
        }
        None
    }
}

fn child<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    }
}
