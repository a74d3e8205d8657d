//! The second pass of rendering: `{name}` placeholders.

use std::collections::BTreeMap;

use serde_json::Value;

use super::script::Script;
use super::url::UrlBuilder;

/// Depth to which placeholders in configuration values are replaced.
const MAX_DEPTH: usize = 3;

/// Source of a value, which decides whether the value is a template itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A path or name that Rye determined: inserted unchanged.
    Fact,
    /// A parameter of the call: inserted unchanged, and never into code.
    Parameter,
    /// A value of the chain's configuration: its placeholders are replaced as well.
    Configuration,
    /// Code that the caller passes to a runtime directly: inserted unchanged, also into code.
    Code,
}

/// A placeholder in a command that has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown placeholder `{{{0}}}` in the command")]
pub struct UnknownPlaceholder(pub String);

/// Values of placeholders.
#[derive(Debug, Clone, Default)]
pub struct Placeholders {
    values: BTreeMap<String, (Value, Origin)>,
}

impl Placeholders {
    /// Sets the value of a name, replacing the previous one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>, origin: Origin) {
        self.values.insert(name.into(), (value.into(), origin));
    }

    /// Value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }

    /// Renders a string; a single placeholder yields its value with its type.
    pub(super) fn value(&self, text: &str) -> Value {
        self.value_to_depth(text, MAX_DEPTH)
    }

    pub(super) fn text(&self, text: &str) -> String {
        self.text_to_depth(text, MAX_DEPTH)
    }

    /// Renders a string into a script, which gets values as data.
    pub(super) fn push_script(&self, text: &str, script: &mut Script) {
        self.visit(text, MAX_DEPTH, &mut |piece| match piece {
            Piece::Text(text) => script.push_code(text),
            Piece::Value { value, .. } => script.push_value(&as_text(value)),
        });
    }

    /// Renders a string into a URL, which encodes the values.
    pub(super) fn push_url(&self, text: &str, url: &mut UrlBuilder) {
        self.visit(text, MAX_DEPTH, &mut |piece| match piece {
            Piece::Text(text) => url.push_literal(text),
            Piece::Value { value, .. } => url.push_value(&as_text(value)),
        });
    }

    /// Fails if the string contains an unknown placeholder.
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

    /// Whether a string is a single placeholder without a value.
    pub(super) fn is_unknown(&self, text: &str) -> bool {
        single_placeholder(text).is_some_and(|name| !self.values.contains_key(name))
    }

    /// Whether a string is a single placeholder with a value.
    pub(super) fn is_known(&self, text: &str) -> bool {
        single_placeholder(text).is_some_and(|name| self.values.contains_key(name))
    }

    /// The first placeholder with one of these origins, in a string or in the configuration
    /// values that it refers to.
    pub(super) fn find_origin(&self, text: &str, origins: &[Origin]) -> Option<(String, Origin)> {
        let mut found = None;
        self.visit(text, MAX_DEPTH, &mut |piece| {
            if let Piece::Value { name, origin, .. } = piece
                && found.is_none()
                && origins.contains(&origin)
            {
                found = Some((format!("{{{name}}}"), origin));
            }
        });
        found
    }

    fn value_to_depth(&self, text: &str, depth: usize) -> Value {
        if let Some(name) = single_placeholder(text)
            && let Some((value, origin)) = self.values.get(name)
        {
            return match (value, origin) {
                (Value::String(inner), Origin::Configuration) if depth > 1 => {
                    self.value_to_depth(inner, depth - 1)
                }
                _ => value.clone(),
            };
        }
        Value::String(self.text_to_depth(text, depth))
    }

    fn text_to_depth(&self, text: &str, depth: usize) -> String {
        let mut result = String::new();
        self.visit(text, depth, &mut |piece| match piece {
            Piece::Text(text) => result.push_str(text),
            Piece::Value { value, .. } => result.push_str(&as_text(value)),
        });
        result
    }

    /// Calls `visitor` with each piece of the rendered string.
    fn visit(&self, text: &str, depth: usize, visitor: &mut impl FnMut(Piece<'_>)) {
        for part in parts(text) {
            match part {
                Part::Text(text) => visitor(Piece::Text(text)),
                Part::Placeholder { name, source } => match self.values.get(name) {
                    None => visitor(Piece::Text(source)),
                    Some((Value::String(inner), Origin::Configuration)) if depth > 1 => {
                        self.visit(inner, depth - 1, visitor);
                    }
                    Some((value, Origin::Configuration | Origin::Code)) => {
                        visitor(Piece::Text(&as_text(value)));
                    }
                    Some((value, origin @ (Origin::Fact | Origin::Parameter))) => {
                        visitor(Piece::Value {
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

/// A piece of a rendered string.
enum Piece<'v> {
    /// Text of the template or of a configuration value.
    Text(&'v str),
    /// Value of a fact or a parameter.
    Value {
        name: &'v str,
        value: &'v Value,
        origin: Origin,
    },
}

/// Formats a value for insertion into a string: a string unchanged, other values as JSON.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The name of the placeholder, if the string consists of a single placeholder.
fn single_placeholder(text: &str) -> Option<&str> {
    let mut parts = parts(text);
    match (parts.next(), parts.next()) {
        (Some(Part::Placeholder { name, .. }), None) => Some(name),
        _ => None,
    }
}

/// A part of a template.
enum Part<'t> {
    Text(&'t str),
    /// A name and its source text with braces.
    Placeholder {
        name: &'t str,
        source: &'t str,
    },
}

/// Splits a string at its placeholders: `{`, a name, `}`. Other braces are text, and so is
/// `${name}`, which is shell syntax.
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
                let (source, other) = rest.split_at(name.len() + 2);
                rest = other;
                return Some(Part::Placeholder { name, source });
            }
            from = at + 1;
        }
        Some(Part::Text(std::mem::take(&mut rest)))
    })
}

/// Parses a placeholder name and its closing brace.
fn name_at(text: &str) -> Option<&str> {
    let (name, _) = text.split_once('}')?;
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let all = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    (first && all).then_some(name)
}
