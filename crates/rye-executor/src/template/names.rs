//! `{name}`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::address::Address;
use super::script::Script;

/// How deep placeholders may stand in what placeholders stand for.
const ROUNDS: usize = 3;

/// Where a value comes from, and so whether it is a template itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A path or a name that Rye determined: put in as it is.
    Fact,
    /// A parameter of the call: put in as it is, and never part of a program's text.
    Parameter,
    /// A value of the chain's configuration: its placeholders count too.
    Configuration,
    /// What the caller asks a runtime itself to run: put in as it is, also
    /// where a shell parses it.
    Code,
}

/// A placeholder in a command that stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{{{0}}}` in the command stands for nothing")]
pub struct UnknownPlaceholder(pub String);

/// What placeholders stand for.
#[derive(Debug, Clone, Default)]
pub struct Names {
    values: BTreeMap<String, (Value, Origin)>,
}

impl Names {
    /// Gives a name its value, over the one it had.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>, origin: Origin) {
        self.values.insert(name.into(), (value.into(), origin));
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }

    /// What a text stands for: a value if it is exactly one placeholder, else a text.
    pub(super) fn value(&self, text: &str) -> Value {
        self.value_within(text, ROUNDS)
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.text_within(text, ROUNDS)
    }

    /// Adds a text to a script, to which what the call gives is data.
    pub(super) fn script(&self, text: &str, script: &mut Script) {
        self.put_in(text, ROUNDS, &mut |put| match put {
            Put::Text(text) => script.code(text),
            Put::Value { value, .. } => script.value(&as_text(value)),
        });
    }

    /// Adds a text to an address, in which what the call gives is encoded.
    pub(super) fn address(&self, text: &str, address: &mut Address) {
        self.put_in(text, ROUNDS, &mut |put| match put {
            Put::Text(text) => address.written(text),
            Put::Value { value, .. } => address.value(&as_text(value)),
        });
    }

    pub(super) fn require_all(&self, text: &str) -> Result<(), UnknownPlaceholder> {
        for part in parts(text) {
            if let Part::Placeholder { name, .. } = part
                && !self.values.contains_key(name)
            {
                return Err(UnknownPlaceholder(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Whether a text is exactly one placeholder, which stands for nothing.
    pub(super) fn is_unknown(&self, text: &str) -> bool {
        only(text).is_some_and(|name| !self.values.contains_key(name))
    }

    /// Whether a text is exactly one placeholder, which stands for something.
    pub(super) fn is_known(&self, text: &str) -> bool {
        only(text).is_some_and(|name| self.values.contains_key(name))
    }

    /// The first placeholder in a text, or in the configuration that it refers to, whose
    /// origin is one of these.
    pub(super) fn first_of(&self, text: &str, origins: &[Origin]) -> Option<(String, Origin)> {
        let mut found = None;
        self.put_in(text, ROUNDS, &mut |put| {
            if let Put::Value { name, origin, .. } = put
                && found.is_none()
                && origins.contains(&origin)
            {
                found = Some((format!("{{{name}}}"), origin));
            }
        });
        found
    }

    fn value_within(&self, text: &str, rounds: usize) -> Value {
        if let Some(name) = only(text)
            && let Some((value, origin)) = self.values.get(name)
        {
            return match (value, origin) {
                (Value::String(inner), Origin::Configuration) if rounds > 1 => {
                    self.value_within(inner, rounds - 1)
                }
                _ => value.clone(),
            };
        }
        Value::String(self.text_within(text, rounds))
    }

    fn text_within(&self, text: &str, rounds: usize) -> String {
        let mut result = String::new();
        self.put_in(text, rounds, &mut |put| match put {
            Put::Text(text) => result.push_str(text),
            Put::Value { value, .. } => result.push_str(&as_text(value)),
        });
        result
    }

    /// Gives a text piece by piece, with what its placeholders stand for.
    fn put_in(&self, text: &str, rounds: usize, put: &mut impl FnMut(Put<'_>)) {
        for part in parts(text) {
            match part {
                Part::Text(text) => put(Put::Text(text)),
                Part::Placeholder { name, written } => match self.values.get(name) {
                    None => put(Put::Text(written)),
                    Some((Value::String(inner), Origin::Configuration)) if rounds > 1 => {
                        self.put_in(inner, rounds - 1, put);
                    }
                    Some((value, Origin::Configuration | Origin::Code)) => {
                        put(Put::Text(&as_text(value)));
                    }
                    Some((value, origin @ (Origin::Fact | Origin::Parameter))) => {
                        put(Put::Value {
                            name,
                            value,
                            origin: *origin,
                        });
                    }
                },
            }
        }
    }
}

/// A piece of a text.
enum Put<'v> {
    /// What a template or the configuration says.
    Text(&'v str),
    /// What a fact or a parameter stands for.
    Value {
        name: &'v str,
        value: &'v Value,
        origin: Origin,
    },
}

/// A value inside a text: a string as it is, everything else as JSON.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The placeholder that a text exactly is.
fn only(text: &str) -> Option<&str> {
    let mut parts = parts(text);
    match (parts.next(), parts.next()) {
        (Some(Part::Placeholder { name, .. }), None) => Some(name),
        _ => None,
    }
}

enum Part<'t> {
    Text(&'t str),
    Placeholder { name: &'t str, written: &'t str },
}

/// Cuts a text at its placeholders: `{`, a name, `}`. Other braces are text, and
/// so is `${name}`, which is a shell's.
fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut from = 0;
        while let Some(at) = rest[from..].find('{').map(|at| from + at) {
            if let Some(name) = name_at(&rest[at + 1..])
                && !rest[..at].ends_with('$')
            {
                if at > 0 {
                    let (text, other) = rest.split_at(at);
                    rest = other;
                    return Some(Part::Text(text));
                }
                let (written, other) = rest.split_at(name.len() + 2);
                rest = other;
                return Some(Part::Placeholder { name, written });
            }
            from = at + 1;
        }
        Some(Part::Text(std::mem::take(&mut rest)))
    })
}

fn name_at(text: &str) -> Option<&str> {
    let (name, _) = text.split_once('}')?;
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let all = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    (first && all).then_some(name)
}
