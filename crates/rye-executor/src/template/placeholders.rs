//! The second pass of rendering: `{name}` placeholders.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lillux::template::{BRACES, Segment};
use serde_json::Value;

use crate::value_ext::as_text;

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

    /// Fails if the string contains an unknown placeholder.
    pub(super) fn require_all(&self, text: &str) -> Result<(), UnknownPlaceholder> {
        for segment in segments(text) {
            if let Segment::Placeholder { value: name, .. } = segment
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
        self.visit(text, &mut |piece| {
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
        let mut result = String::new();
        self.visit_to_depth(text, depth, &mut |piece| result.push_str(&piece.to_text()));
        Value::String(result)
    }

    /// Calls `visitor` with each piece of the rendered string.
    pub(super) fn visit(&self, text: &str, visitor: &mut impl FnMut(Piece<'_>)) {
        self.visit_to_depth(text, MAX_DEPTH, visitor);
    }

    fn visit_to_depth(&self, text: &str, depth: usize, visitor: &mut impl FnMut(Piece<'_>)) {
        for segment in segments(text) {
            let (name, source) = match segment {
                Segment::Text(text) => {
                    visitor(Piece::Text(text));
                    continue;
                }
                Segment::Placeholder { value, source } => (value, source),
            };
            match self.values.get(name) {
                None => visitor(Piece::Text(source)),
                Some((Value::String(inner), Origin::Configuration)) if depth > 1 => {
                    self.visit_to_depth(inner, depth - 1, visitor);
                }
                Some((value, Origin::Configuration | Origin::Code)) => {
                    visitor(Piece::Text(&as_text(value)));
                }
                Some((value, origin @ (Origin::Fact | Origin::Parameter))) => {
                    let origin = *origin;
                    visitor(Piece::Value {
                        name,
                        value,
                        origin,
                    });
                }
            }
        }
    }
}

/// A piece of a rendered string.
pub(super) enum Piece<'v> {
    /// Text of the template or of a configuration value.
    Text(&'v str),
    /// Value of an environment variable.
    Variable(&'v str),
    /// Value of a fact or a parameter.
    Value {
        name: &'v str,
        value: &'v Value,
        origin: Origin,
    },
}

impl Piece<'_> {
    pub(super) fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Variable(text) => Cow::Borrowed(text),
            Self::Value { value, .. } => Cow::Owned(as_text(value)),
        }
    }
}

/// The name of the placeholder, if the string consists of a single placeholder.
fn single_placeholder(text: &str) -> Option<&str> {
    let mut segments = segments(text);
    match (segments.next(), segments.next()) {
        (Some(Segment::Placeholder { value: name, .. }), None) => Some(name),
        _ => None,
    }
}

/// Names of the placeholders in a string.
pub(super) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    segments(text).filter_map(|segment| match segment {
        Segment::Text(_) => None,
        Segment::Placeholder { value, .. } => Some(value),
    })
}

/// Splits a string at its placeholders. A name begins with a letter or `_`.
fn segments(text: &str) -> impl Iterator<Item = Segment<'_, &str>> {
    BRACES.segments(text, |name| {
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (first && name.chars().all(fits)).then_some(name)
    })
}
