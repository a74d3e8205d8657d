//! Interpolation: `${state.a.0.b}`, `${inputs.x || 'none'}`, in any string of a graph.
//!
//! Strings are parsed once, with the graph. A string that consists of a single expression yields
//! the value with its type. `${NAME}` in upper case is left for the executor, and `$${` is a
//! literal `${`.

use lillux::template::{EXPRESSION, Segment};
use lillux::{quote_block, sanitize_line};
use rye_items::metadata::{Data, Node};
use rye_protocol::json;
use serde_json::{Map, Value};

use crate::path::{Path, Scope};
use crate::problem::Problem;
use crate::walk::display_text;

/// A value that may contain expressions.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    Literal(Value),
    Whole(Expression),
    Text(Vec<Piece>),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// A part of a string.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Literal(String),
    Expression(Expression),
}

/// The alternatives between `${` and `}`; the first with a value wins.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    alternatives: Vec<Operand>,
    pub(crate) at: usize,
}

#[derive(Debug, Clone)]
enum Operand {
    Path(Path),
    Literal(Value),
}

impl Template {
    /// Parses a value. Problems of its expressions are added to `problems`.
    pub(crate) fn parse(node: &Node, variable: Option<&str>, problems: &mut Vec<Problem>) -> Self {
        match &node.data {
            Data::Text(text) => parse_text(text, node.at, variable, problems),
            Data::List(items) => {
                let items = items.iter();
                let items: Vec<_> = items
                    .map(|it| Self::parse(it, variable, problems))
                    .collect();
                match items.iter().map(|it| it.as_literal().cloned()).collect() {
                    Some(values) => Self::Literal(Value::Array(values)),
                    None => Self::List(items),
                }
            }
            Data::Map(entries) => {
                let entries = entries.iter();
                let fields: Vec<_> = entries
                    .map(|it| (it.key.clone(), Self::parse(&it.value, variable, problems)))
                    .collect();
                let literals = fields.iter();
                let literals =
                    literals.map(|(name, it)| Some((name.clone(), it.as_literal()?.clone())));
                match literals.collect() {
                    Some(values) => Self::Literal(Value::Object(values)),
                    None => Self::Map(fields),
                }
            }
            _ => Self::Literal(node.clone().into_value()),
        }
    }

    /// The value, if it contains no expressions.
    pub(crate) fn as_literal(&self) -> Option<&Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// Evaluates the expressions. A missing value is null, or empty inside a string.
    pub(crate) fn render(&self, scope: &Scope<'_>) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Whole(expression) => expression.value(scope),
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Literal(plain) => text.push_str(plain),
                        Piece::Expression(it) => text.push_str(&display_text(&it.value(scope))),
                    }
                }
                Value::String(text)
            }
            Self::List(items) => items.iter().map(|item| item.render(scope)).collect(),
            Self::Map(fields) => {
                let fields = fields.iter();
                let filled = fields.map(|(name, field)| (name.clone(), field.render(scope)));
                Value::Object(filled.collect::<Map<_, _>>())
            }
        }
    }

    /// Names of the fields that contain interpolated values. `filled` is the rendered mapping.
    pub(crate) fn interpolated(&self, filled: &Value) -> Vec<String> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Map(fields) => {
                let fields = fields.iter().filter(|(_, it)| it.as_literal().is_none());
                fields.map(|(name, _)| name.clone()).collect()
            }
            _ => {
                let fields = filled.as_object().into_iter().flatten();
                fields.map(|(name, _)| name.clone()).collect()
            }
        }
    }

    /// Renders a text for a user who decides on it. Values are sanitised and quoted, so that they
    /// cannot be mistaken for text of the graph.
    pub(crate) fn render_for_user(&self, scope: &Scope<'_>) -> String {
        let pieces = match self {
            Self::Text(pieces) => pieces.as_slice(),
            Self::Whole(expression) => {
                let mut text = String::new();
                push_quoted(&display_text(&expression.value(scope)), &mut text);
                return text;
            }
            other => return display_text(&other.render(scope)),
        };
        let (mut text, mut quotes) = (String::new(), false);
        for piece in pieces {
            let value = match piece {
                Piece::Literal(plain) => {
                    if quotes && !plain.starts_with('\n') {
                        text.push('\n');
                    }
                    text.push_str(plain);
                    quotes = false;
                    continue;
                }
                Piece::Expression(expression) => display_text(&expression.value(scope)),
            };
            if quotes && !value.is_empty() {
                text.push('\n');
            }
            quotes = push_quoted(&value, &mut text) || (quotes && value.is_empty());
        }
        text
    }

    /// Collects all paths with their positions.
    pub(crate) fn paths<'t>(&'t self, found: &mut Vec<(usize, &'t Path)>) {
        match self {
            Self::Literal(_) => {}
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

/// Appends a value; returns whether it was quoted on lines of its own.
fn push_quoted(value: &str, text: &mut String) -> bool {
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

impl Expression {
    fn value(&self, scope: &Scope<'_>) -> Value {
        for operand in &self.alternatives {
            let value = match operand {
                Operand::Literal(value) => Some(value.clone()),
                Operand::Path(path) => scope.get(path),
            };
            if let Some(value) = value.filter(|value| !value.is_null()) {
                return value;
            }
        }
        // An explicit null is intended; a missing value may be a typo.
        if let Some(Operand::Path(path)) = self.alternatives.last()
            && scope.get(path).is_none()
        {
            scope.record_missing(path);
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

    fn parse(text: &str, at: usize, variable: Option<&str>, problems: &mut Vec<Problem>) -> Self {
        let mut alternatives = Vec::new();
        for part in text.split("||").map(str::trim) {
            match operand(part, variable) {
                Ok(operand) => alternatives.push(operand),
                Err((message, near)) => {
                    let hint = near.map_or_else(
                        || "to write a literal `${`, use `$${`".to_owned(),
                        |near| format!("did you mean `{near}`?"),
                    );
                    problems.push(Problem::error(at, "bad_expression", message).with_hint(hint));
                }
            }
        }
        Self { alternatives, at }
    }
}

fn operand(text: &str, variable: Option<&str>) -> Result<Operand, (String, Option<String>)> {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(inner) = quoted('\'') {
        return Ok(Operand::Literal(inner.into()));
    }
    // JSON literals.
    match json::parse(text) {
        Ok(value) => Ok(Operand::Literal(value)),
        Err(_) => Path::parse(text, variable).map(Operand::Path),
    }
}

/// Whether this is an environment variable, which the executor replaces.
fn is_environment_variable(inner: &str) -> bool {
    let name = inner.split(":-").next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(fits) && name.contains(|c: char| c.is_ascii_uppercase())
}

fn parse_text(
    text: &str,
    at: usize,
    variable: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Template {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    for segment in EXPRESSION.segments(text, Some) {
        match segment {
            Segment::Text(text) => {
                if text.replace("$${", "").contains("${") {
                    let message = "`${` without `}`";
                    problems.push(Problem::error(at, "bad_expression", message));
                }
                plain.push_str(&text.replace("$${", "${"));
            }
            Segment::Placeholder { value, source } if is_environment_variable(value) => {
                plain.push_str(source);
            }
            Segment::Placeholder { value, .. } => {
                if !plain.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut plain)));
                }
                let expression = Expression::parse(value, at, variable, problems);
                pieces.push(Piece::Expression(expression));
            }
        }
    }
    if pieces.is_empty() {
        return Template::Literal(Value::String(plain));
    }
    if !plain.is_empty() {
        pieces.push(Piece::Literal(plain));
    }
    match pieces.as_slice() {
        [Piece::Expression(whole)] => Template::Whole(whole.clone()),
        _ => Template::Text(pieces),
    }
}

#[cfg(test)]
mod tests;
