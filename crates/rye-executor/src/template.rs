//! Templates: what stands between a runtime's words and the words of a call.
//!
//! Two passes, each over a text once. The first puts in `${VAR}` and
//! `${VAR:-default}` from the environment; the second `{name}` from what the
//! call knows. A value that was put in is never scanned for `${…}`, and a value
//! that came from the caller is never scanned at all: what looks like a
//! placeholder in a parameter is passed on as it is.

mod address;
mod names;
mod script;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use address::LeadsElsewhere;
pub use names::{Names, Origin, UnknownPlaceholder};
pub use script::Script;

/// Environment variables.
pub type Variables = BTreeMap<String, String>;

/// A value that would become part of a program's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{reference}` is {source_name}, and a value never becomes part of a program's text")]
pub struct ValueAsCode {
    /// The placeholder, as it is written.
    pub reference: String,
    /// Where its value comes from, in words.
    pub source_name: &'static str,
}

/// Where the text of a program may take values from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// A shell, for which facts and variables can be quoted.
    Shell,
    /// Another interpreter, in whose text nothing can be quoted.
    Other,
}

/// Refuses a program's text into which a parameter, or a variable with a value of the caller
/// or of `.env`, would be put. Quoting is not enough: a shell evaluates what it finds in a
/// variable where it expects arithmetic or a name.
pub fn check_code(
    text: &str,
    untrusted: &BTreeSet<String>,
    names: &Names,
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
        if let Some((reference, origin)) = names.first_of(text, origins) {
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
            source_name: "a value of the call or of .env",
        }),
        None => Ok(()),
    }
}

/// Whether a template takes a parameter, or a variable with a value of the caller or of `.env`.
pub fn takes_untrusted(text: &str, untrusted: &BTreeSet<String>, names: &Names) -> bool {
    check_code(text, untrusted, names, CodeKind::Shell).is_err()
}

/// The names of all `${VAR}` in the texts of a value.
pub fn variable_names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            found.extend(variables::names(text).into_iter().map(str::to_owned));
        }
        Value::Array(items) => items.iter().for_each(|item| variable_names(item, found)),
        Value::Object(fields) => fields.values().for_each(|it| variable_names(it, found)),
        _ => {}
    }
}

/// Both passes over one text. A text that is exactly one placeholder gives the
/// value with its type.
pub fn render(text: &str, variables: &Variables, names: &Names) -> Value {
    // What the first pass puts in must not be read by the second, nor the other
    // way round; so the text is cut at the variables first.
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

/// Both passes over what a shell gets after `-c`: to the shell, each value that is put in is
/// data, whatever is in it. `passed` are the values that it is passed already.
pub fn render_script(
    text: &str,
    variables: &Variables,
    names: &Names,
    passed: Variables,
) -> Script {
    let mut script = Script::new(passed);
    for piece in variables::pieces(text, variables) {
        match piece {
            variables::Piece::Text(text) => names.script(text, &mut script),
            variables::Piece::Value(value) => script.value(&value),
        }
    }
    script
}

/// Both passes over an address. What the call gives is one part of it and no more: it is
/// encoded where it stands in the path or the query. An address that the call gives whole is
/// left as it is.
pub fn render_address(
    text: &str,
    variables: &Variables,
    names: &Names,
) -> Result<Value, LeadsElsewhere> {
    let pieces = variables::pieces(text, variables);
    if let [variables::Piece::Text(whole)] = pieces.as_slice()
        && names.is_known(whole)
    {
        return Ok(names.value(whole));
    }
    let mut address = address::Address::default();
    for piece in pieces {
        match piece {
            variables::Piece::Text(text) => names.address(text, &mut address),
            variables::Piece::Value(value) => address.written(&value),
        }
    }
    Ok(Value::String(address.finish()?))
}

/// Both passes over the text of a command, in which every placeholder must be known.
pub fn render_command(
    text: &str,
    variables: &Variables,
    names: &Names,
) -> Result<String, UnknownPlaceholder> {
    for piece in variables::pieces(text, variables) {
        if let variables::Piece::Text(text) = piece {
            names.require_all(text)?;
        }
    }
    Ok(names::as_text(&render(text, variables, names)))
}

/// Both passes over all texts in a value; keys are left alone.
pub fn render_value(value: &Value, variables: &Variables, names: &Names) -> Value {
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

/// A template without the fields and items that are exactly one placeholder and
/// stand for nothing; none if it is one itself.
pub fn given(value: &Value, names: &Names) -> Option<Value> {
    match value {
        Value::String(text) if names.is_unknown(text) => None,
        Value::Array(items) => Some(items.iter().filter_map(|item| given(item, names)).collect()),
        Value::Object(fields) => Some(
            fields
                .iter()
                .filter_map(|(key, field)| Some((key.clone(), given(field, names)?)))
                .collect(),
        ),
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests;
