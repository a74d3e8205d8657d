//! Interpolation: `${state.a.0.b}`, `${inputs.x || 'none'}`, in any text of a graph.
//!
//! A text is taken apart once, when the graph is read; a run only fills it in. A text that
//! is exactly one expression gives the value with its type. `${NAME}` in upper case is the
//! executor's and stays as it is, and `$${` is a plain `${`.

use lillux::{quote_block, sanitize_line};
use rye_items::metadata::{Data, Node};
use serde_json::{Map, Value};

use crate::path::{Path, Scope};
use crate::problem::Problem;
use crate::walk::words;

/// A value with places to be filled in.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    Plain(Value),
    Whole(Expression),
    Text(Vec<Piece>),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// A part of a text.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Plain(String),
    Expression(Expression),
}

/// What stands between `${` and `}`: the first that is something counts.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    alternatives: Vec<Operand>,
    pub(crate) at: usize,
}

#[derive(Debug, Clone)]
enum Operand {
    Path(Path),
    Plain(Value),
}

impl Template {
    /// Reads a value; what is wrong with its expressions goes to `problems`.
    pub(crate) fn read(node: &Node, variable: Option<&str>, problems: &mut Vec<Problem>) -> Self {
        match &node.data {
            Data::Text(text) => read_text(text, node.at, variable, problems),
            Data::List(items) => {
                let items = items.iter();
                let items: Vec<_> = items.map(|it| Self::read(it, variable, problems)).collect();
                match plain_all(&items) {
                    Some(values) => Self::Plain(Value::Array(values)),
                    None => Self::List(items),
                }
            }
            Data::Map(entries) => {
                let entries = entries.iter();
                let fields: Vec<_> = entries
                    .map(|it| (it.key.clone(), Self::read(&it.value, variable, problems)))
                    .collect();
                if fields
                    .iter()
                    .all(|(_, field)| matches!(field, Self::Plain(_)))
                {
                    let fields = fields.into_iter();
                    let fields = fields.map(|(name, field)| (name, field.into_plain()));
                    Self::Plain(Value::Object(fields.collect()))
                } else {
                    Self::Map(fields)
                }
            }
            _ => Self::Plain(node.clone().into_value()),
        }
    }

    fn into_plain(self) -> Value {
        match self {
            Self::Plain(value) => value,
            _ => Value::Null,
        }
    }

    /// The value, where nothing of it is filled in.
    pub(crate) fn as_plain(&self) -> Option<&Value> {
        match self {
            Self::Plain(value) => Some(value),
            _ => None,
        }
    }

    /// Filled in. What is nothing is null in a value, and empty in a text.
    pub(crate) fn fill(&self, scope: &Scope<'_>) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Whole(expression) => expression.value(scope),
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Plain(plain) => text.push_str(plain),
                        Piece::Expression(expression) => match expression.value(scope) {
                            Value::Null => {}
                            Value::String(value) => text.push_str(&value),
                            other => text.push_str(&other.to_string()),
                        },
                    }
                }
                Value::String(text)
            }
            Self::List(items) => items.iter().map(|item| item.fill(scope)).collect(),
            Self::Map(fields) => {
                let fields = fields.iter();
                let filled = fields.map(|(name, field)| (name.clone(), field.fill(scope)));
                Value::Object(filled.collect::<Map<_, _>>())
            }
        }
    }

    /// The fields of a mapping, given as it was filled in, that contain interpolated values.
    pub(crate) fn interpolated(&self, filled: &Value) -> Vec<String> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::Map(fields) => {
                let fields = fields.iter().filter(|(_, it)| it.as_plain().is_none());
                fields.map(|(name, _)| name.clone()).collect()
            }
            _ => {
                let fields = filled.as_object().into_iter().flatten();
                fields.map(|(name, _)| name.clone()).collect()
            }
        }
    }

    /// Filled in for a person who decides by it. What comes from elsewhere looks like nothing
    /// that the graph says: it is on one line, or each of its lines behind a bar.
    pub(crate) fn shown(&self, scope: &Scope<'_>) -> String {
        let pieces = match self {
            Self::Text(pieces) => pieces.as_slice(),
            Self::Whole(expression) => {
                let mut text = String::new();
                show(&words(&expression.value(scope)), &mut text);
                return text;
            }
            other => return words(&other.fill(scope)),
        };
        let (mut text, mut quotes) = (String::new(), false);
        for piece in pieces {
            let value = match piece {
                Piece::Plain(plain) => {
                    if quotes && !plain.starts_with('\n') {
                        text.push('\n');
                    }
                    text.push_str(plain);
                    quotes = false;
                    continue;
                }
                Piece::Expression(expression) => words(&expression.value(scope)),
            };
            if quotes && !value.is_empty() {
                text.push('\n');
            }
            quotes = show(&value, &mut text) || (quotes && value.is_empty());
        }
        text
    }

    /// All paths in it, each with its place.
    pub(crate) fn paths<'t>(&'t self, found: &mut Vec<(usize, &'t Path)>) {
        match self {
            Self::Plain(_) => {}
            Self::Whole(expression) => expression.paths(found),
            Self::Text(pieces) => {
                for piece in pieces {
                    if let Piece::Expression(expression) = piece {
                        expression.paths(found);
                    }
                }
            }
            Self::List(items) => items.iter().for_each(|item| item.paths(found)),
            Self::Map(fields) => fields.iter().for_each(|(_, field)| field.paths(found)),
        }
    }
}

/// Adds a text of others to what a graph says, and tells whether it has lines of its own now.
fn show(value: &str, text: &mut String) -> bool {
    if !value.contains('\n') {
        text.push_str(&sanitize_line(value));
        return false;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&quote_block(value));
    true
}

fn plain_all(items: &[Template]) -> Option<Vec<Value>> {
    items.iter().map(|it| it.as_plain().cloned()).collect()
}

impl Expression {
    fn value(&self, scope: &Scope<'_>) -> Value {
        for operand in &self.alternatives {
            let value = match operand {
                Operand::Plain(value) => Some(value.clone()),
                Operand::Path(path) => scope.get(path),
            };
            if let Some(value) = value.filter(|value| !value.is_null()) {
                return value;
            }
        }
        // Null that is there is what somebody wanted; what is not there is perhaps misspelt.
        if let Some(Operand::Path(path)) = self.alternatives.last()
            && scope.get(path).is_none()
        {
            scope.note_missing(path);
        }
        Value::Null
    }

    fn paths<'t>(&'t self, found: &mut Vec<(usize, &'t Path)>) {
        for operand in &self.alternatives {
            if let Operand::Path(path) = operand {
                found.push((self.at, path));
            }
        }
    }

    fn read(text: &str, at: usize, variable: Option<&str>, problems: &mut Vec<Problem>) -> Self {
        let mut alternatives = Vec::new();
        for part in text.split("||").map(str::trim) {
            match operand(part, variable) {
                Ok(operand) => alternatives.push(operand),
                Err((message, near)) => {
                    let problem = Problem::error(at, "bad_expression", message);
                    problems.push(match near {
                        Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
                        None => problem.with_hint("a plain `${` is written `$${`"),
                    });
                }
            }
        }
        Self { alternatives, at }
    }
}

fn operand(text: &str, variable: Option<&str>) -> Result<Operand, (String, Option<String>)> {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(inner) = quoted('\'') {
        return Ok(Operand::Plain(inner.into()));
    }
    // Numbers, true, false, null, lists and the like.
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(Operand::Plain(value));
    }
    Path::read(text, variable).map(Operand::Path)
}

/// `NAME`, `NAME:-default`: what the executor puts in.
fn is_executors(inner: &str) -> bool {
    let name = inner.split(":-").next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(fits) && name.contains(|c: char| c.is_ascii_uppercase())
}

fn read_text(
    text: &str,
    at: usize,
    variable: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Template {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            plain.push_str(before);
            plain.push_str("${");
            rest = &from[2..];
            continue;
        }
        plain.push_str(before);
        let Some(end) = from.find('}') else {
            let message = "`${` has no `}` after it";
            problems.push(Problem::error(at, "bad_expression", message));
            rest = "";
            break;
        };
        let inner = &from[2..end];
        if is_executors(inner) {
            plain.push_str(&from[..=end]);
        } else {
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Expression(Expression::read(
                inner, at, variable, problems,
            )));
        }
        rest = &from[end + 1..];
    }
    plain.push_str(rest);
    if pieces.is_empty() {
        return Template::Plain(Value::String(plain));
    }
    if !plain.is_empty() {
        pieces.push(Piece::Plain(plain));
    }
    match pieces.as_slice() {
        [Piece::Expression(whole)] => Template::Whole(whole.clone()),
        _ => Template::Text(pieces),
    }
}

#[cfg(test)]
mod tests;
