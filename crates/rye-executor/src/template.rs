//! Templates in the configuration of items.
//!
//! Rendering has two passes. The first replaces `${VAR}` and `${VAR:-default}` by environment
//! variables, the second replaces `{name}` by values of the call. An inserted value is never
//! scanned for `${…}`, and a value from the caller is not scanned at all: a parameter that looks
//! like a placeholder stays unchanged.

mod placeholders;
mod script;
mod url;

use std::collections::{BTreeMap, BTreeSet};

use lillux::template::{Segment, VARIABLE, Variable};
use serde_json::Value;

pub use placeholders::{Origin, Placeholders, UnknownPlaceholder};
pub use script::Script;
pub use url::PathTraversal;

use crate::value_ext::as_text;
use placeholders::Piece;

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;

/// Splits a template at its `${VAR}` and `${VAR:-default}`.
fn variables_in(text: &str) -> impl Iterator<Item = Segment<'_, Variable<'_>>> {
    VARIABLE.segments(text, |inner| {
        Variable::parse(inner, |c| c.is_ascii_uppercase())
    })
}

/// Names of the variables that a template refers to.
fn variable_names(text: &str) -> impl Iterator<Item = &str> {
    variables_in(text).filter_map(|segment| match segment {
        Segment::Text(_) => None,
        Segment::Placeholder { value, .. } => Some(value.name),
    })
}

/// The value of a variable. As in a shell, `:-` also replaces an empty value.
fn value_of<'v>(variable: Variable<'v>, variables: &'v Variables) -> &'v str {
    let value = variables.get(variable.name).map(String::as_str);
    let value = value.filter(|value| !value.is_empty() || variable.default.is_none());
    value.or(variable.default).unwrap_or_default()
}

/// Calls `visitor` with each piece of a rendered template. Splitting at the variables first keeps
/// each pass from scanning values that the other inserted.
fn visit(
    text: &str,
    variables: &Variables,
    names: &Placeholders,
    visitor: &mut impl FnMut(Piece<'_>),
) {
    for segment in variables_in(text) {
        match segment {
            Segment::Text(text) => names.visit(text, visitor),
            Segment::Placeholder { value, .. } => {
                visitor(Piece::Variable(value_of(value, variables)));
            }
        }
    }
}

/// Whether a template contains variables.
fn has_variables(text: &str) -> bool {
    variable_names(text).next().is_some()
}

/// A value that would become part of program code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{reference}` is {source_name} and must not become part of program code")]
pub struct ValueAsCode {
    /// The placeholder as written in the template.
    pub reference: String,
    /// Description of the value's source.
    pub source_name: &'static str,
}

/// Language of inline code, which decides whether values can be quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// Shell code, in which facts and variables can be quoted.
    Shell,
    /// Code of another language, in which nothing can be quoted.
    Other,
}

/// Rejects code that would contain a parameter or an untrusted variable. Quoting is not enough:
/// a shell evaluates the content of a variable where it expects arithmetic or a name.
pub fn check_code(
    text: &str,
    untrusted: &BTreeSet<String>,
    names: &Placeholders,
    kind: CodeKind,
) -> Result<(), ValueAsCode> {
    let origins: &[Origin] = match kind {
        CodeKind::Shell => &[Origin::Parameter],
        CodeKind::Other => &[Origin::Parameter, Origin::Fact],
    };
    for segment in variables_in(text) {
        let Segment::Text(text) = segment else {
            continue;
        };
        if let Some((reference, origin)) = names.find_origin(text, origins) {
            let source_name = match origin {
                Origin::Parameter => "a parameter",
                _ => "a path or name of the call",
            };
            return Err(ValueAsCode {
                reference,
                source_name,
            });
        }
    }
    match variable_names(text).find(|name| untrusted.contains(*name)) {
        Some(name) => Err(ValueAsCode {
            reference: format!("${{{name}}}"),
            source_name: "a value from the call or from .env",
        }),
        None => Ok(()),
    }
}

/// Whether a template contains a parameter or an untrusted variable.
pub fn contains_untrusted(text: &str, untrusted: &BTreeSet<String>, names: &Placeholders) -> bool {
    check_code(text, untrusted, names, CodeKind::Shell).is_err()
}

/// Collects the names of all `${VAR}` in the strings of a value.
pub fn collect_variable_names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => found.extend(variable_names(text).map(str::to_owned)),
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_variable_names(item, found)),
        Value::Object(fields) => fields
            .values()
            .for_each(|it| collect_variable_names(it, found)),
        _ => {}
    }
}

/// Collects the names of all `{name}` in the strings of a value.
pub fn collect_placeholder_names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => found.extend(placeholders::names_in(text).map(str::to_owned)),
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_placeholder_names(item, found)),
        Value::Object(fields) => fields
            .values()
            .for_each(|it| collect_placeholder_names(it, found)),
        _ => {}
    }
}

/// Renders a string. A template that consists of a single placeholder yields the value with its
/// type.
pub fn render(text: &str, variables: &Variables, names: &Placeholders) -> Value {
    if !has_variables(text) {
        return names.value(text);
    }
    let mut result = String::new();
    visit(text, variables, names, &mut |piece| {
        result.push_str(&piece.to_text());
    });
    Value::String(result)
}

/// Renders a script for a shell's `-c`. Values are passed as variables, so that the shell never
/// parses them. `passed` contains the values of scripts that were rendered before.
pub fn render_script(
    text: &str,
    variables: &Variables,
    names: &Placeholders,
    passed: Variables,
) -> Script {
    let mut script = Script::new(passed);
    visit(text, variables, names, &mut |piece| match piece {
        Piece::Text(text) => script.push_code(text),
        other => script.push_value(&other.to_text()),
    });
    script
}

/// Renders a URL. Values of the call are percent-encoded in the path and the query. A URL that
/// consists of a single placeholder is left unchanged.
pub fn render_url(
    text: &str,
    variables: &Variables,
    names: &Placeholders,
) -> Result<Value, PathTraversal> {
    if !has_variables(text) && names.is_known(text) {
        return Ok(names.value(text));
    }
    let mut url = url::UrlBuilder::default();
    visit(text, variables, names, &mut |piece| match piece {
        Piece::Value { value, .. } => url.push_value(&as_text(value)),
        other => url.push_literal(&other.to_text()),
    });
    Ok(Value::String(url.finish()?))
}

/// Renders a command. Unknown placeholders are an error.
pub fn render_command(
    text: &str,
    variables: &Variables,
    names: &Placeholders,
) -> Result<String, UnknownPlaceholder> {
    for segment in variables_in(text) {
        if let Segment::Text(text) = segment {
            names.require_all(text)?;
        }
    }
    Ok(as_text(&render(text, variables, names)))
}

/// Renders all strings in a value; keys stay unchanged.
pub fn render_value(value: &Value, variables: &Variables, names: &Placeholders) -> Value {
    match value {
        Value::String(text) => render(text, variables, names),
        Value::Array(items) => items
            .iter()
            .map(|item| render_value(item, variables, names))
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| (key.clone(), render_value(field, variables, names)))
            .collect(),
        other => other.clone(),
    }
}

/// Removes the fields and items that consist of a single unknown placeholder. Returns `None` if
/// the template itself does.
pub fn without_unknown(value: &Value, names: &Placeholders) -> Option<Value> {
    match value {
        Value::String(text) if names.is_unknown(text) => None,
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(|item| without_unknown(item, names))
                .collect(),
        ),
        Value::Object(fields) => Some(
            fields
                .iter()
                .filter_map(|(key, field)| Some((key.clone(), without_unknown(field, names)?)))
                .collect(),
        ),
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests;
