//! Templates in the configuration of items.
//!
//! Rendering has two passes. The first replaces `${VAR}` and `${VAR:-default}` by environment
//! variables, the second replaces `{name}` by values of the call. An inserted value is never
//! scanned for `${…}`, and a value from the caller is not scanned at all: a parameter that looks
//! like a placeholder stays unchanged.

mod placeholders;
mod script;
mod url;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use placeholders::{Origin, Placeholders, UnknownPlaceholder};
pub use script::Script;
pub use url::PathTraversal;

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;

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
    for piece in variables::pieces(text, &Variables::new()) {
        let variables::Piece::Text(text) = piece else {
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
    let mut variables = variables::names(text).into_iter();
    match variables.find(|name| untrusted.contains(*name)) {
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
        Value::String(text) => {
            found.extend(variables::names(text).into_iter().map(str::to_owned));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_variable_names(item, found)),
        Value::Object(fields) => fields
            .values()
            .for_each(|it| collect_variable_names(it, found)),
        _ => {}
    }
}

/// Renders a string. A template that consists of a single placeholder yields the value with its
/// type.
pub fn render(text: &str, variables: &Variables, names: &Placeholders) -> Value {
    // Splitting at the variables first keeps each pass from scanning values that the other
    // inserted.
    let pieces = variables::pieces(text, variables);
    if let [variables::Piece::Text(whole)] = pieces.as_slice() {
        return names.value(whole);
    }
    let mut result = String::new();
    for piece in pieces {
        match piece {
            variables::Piece::Text(text) => result.push_str(&names.text(text)),
            variables::Piece::Value(value) => result.push_str(&value),
        }
    }
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
    for piece in variables::pieces(text, variables) {
        match piece {
            variables::Piece::Text(text) => names.push_script(text, &mut script),
            variables::Piece::Value(value) => script.push_value(&value),
        }
    }
    script
}

/// Renders a URL. Values of the call are percent-encoded in the path and the query. A URL that
/// consists of a single placeholder is left unchanged.
pub fn render_url(
    text: &str,
    variables: &Variables,
    names: &Placeholders,
) -> Result<Value, PathTraversal> {
    let pieces = variables::pieces(text, variables);
    if let [variables::Piece::Text(whole)] = pieces.as_slice()
        && names.is_known(whole)
    {
        return Ok(names.value(whole));
    }
    let mut url = url::UrlBuilder::default();
    for piece in pieces {
        match piece {
            variables::Piece::Text(text) => names.push_url(text, &mut url),
            variables::Piece::Value(value) => url.push_literal(&value),
        }
    }
    Ok(Value::String(url.finish()?))
}

/// Renders a command. Unknown placeholders are an error.
pub fn render_command(
    text: &str,
    variables: &Variables,
    names: &Placeholders,
) -> Result<String, UnknownPlaceholder> {
    for piece in variables::pieces(text, variables) {
        if let variables::Piece::Text(text) = piece {
            names.require_all(text)?;
        }
    }
    Ok(placeholders::as_text(&render(text, variables, names)))
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
