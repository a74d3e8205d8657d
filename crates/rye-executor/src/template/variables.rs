//! The first pass of rendering: `${VAR}` and `${VAR:-default}`.

use super::Variables;

/// A part of a template after the first pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// Text of the template.
    Text(&'t str),
    /// Value of a variable.
    Value(String),
}

/// Splits a template at its variables and replaces them by their values.
pub(super) fn pieces<'t>(text: &'t str, variables: &Variables) -> Vec<Piece<'t>> {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = rest[from..].find("${").map(|at| from + at) {
        let Some((reference, length)) = reference(&rest[at..]) else {
            from = at + 2;
            continue;
        };
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        let value = variables.get(reference.name).filter(|value| {
            // As in a shell, `:-` also replaces an empty value.
            !(value.is_empty() && reference.default.is_some())
        });
        let value = value.map_or(reference.default.unwrap_or_default(), String::as_str);
        pieces.push(Piece::Value(value.to_owned()));
        (rest, from) = (&rest[at + length..], 0);
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// Names of the variables that a template refers to.
pub(super) fn names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        rest = match reference(&rest[at..]) {
            Some((reference, length)) => {
                names.push(reference.name);
                &rest[at + length..]
            }
            None => &rest[at + 2..],
        };
    }
    names
}

struct Reference<'t> {
    name: &'t str,
    default: Option<&'t str>,
}

/// Parses the reference at the start of the text; returns it and its length.
fn reference(text: &str) -> Option<(Reference<'_>, usize)> {
    let end = text.find('}')?;
    let inner = text.get(2..end)?;
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let first = name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_');
    let all = name
        .chars()
        .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    (first && all).then_some((Reference { name, default }, end + 1))
}
