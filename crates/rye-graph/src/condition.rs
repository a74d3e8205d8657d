//! Conditions: `{path, op, value}`, and `all`, `any`, `not` of them.

use std::cmp::Ordering;

use regex::Regex;
use rye_items::metadata::{Data, Node};
use serde_json::Value;
use strum::{EnumString, VariantNames};

use crate::parse::Fields;
use crate::path::{Path, Scope};
use crate::problem::Problem;
use crate::template::Template;

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Op {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    NotIn,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    Exists,
}

/// A condition of an edge or a hook.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Test(Box<Test>),
}

#[derive(Debug, Clone)]
pub(crate) struct Test {
    path: Path,
    at: usize,
    op: Op,
    value: Template,
    /// The compiled pattern, unless it is an expression.
    pattern: Option<Regex>,
}

impl Condition {
    /// Parses a condition. Problems are added to `problems`; then the result is `None`.
    pub(crate) fn parse(
        node: &Node,
        variable: Option<&str>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let Data::Map(entries) = &node.data else {
            let message = format!("a condition must be a mapping, not {}", node.kind());
            problems.push(Problem::error(node.at, "wrong_type", message).with_hint(EXAMPLE));
            return None;
        };
        for (name, list) in [("all", true), ("any", true), ("not", false)] {
            let Some(inner) = node.get(name) else {
                continue;
            };
            if let Some(other) = entries.iter().find(|entry| entry.key != name) {
                let message = format!("`{name}` cannot be combined with `{}`", other.key);
                problems.push(Problem::error(other.at, "bad_condition", message));
                return None;
            }
            if !list {
                return Some(Self::Not(Box::new(Self::parse(inner, variable, problems)?)));
            }
            let Data::List(items) = &inner.data else {
                let message = format!(
                    "`{name}` must be a list of conditions, not {}",
                    inner.kind()
                );
                problems.push(Problem::error(inner.at, "wrong_type", message));
                return None;
            };
            let all: Vec<_> = items
                .iter()
                .filter_map(|item| Self::parse(item, variable, problems))
                .collect();
            let all = (all.len() == items.len()).then_some(all)?;
            return Some(if name == "all" {
                Self::All(all)
            } else {
                Self::Any(all)
            });
        }
        Test::parse(node, variable, problems).map(|test| Self::Test(Box::new(test)))
    }

    /// Evaluates the condition.
    pub(crate) fn holds(&self, scope: &Scope<'_>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|one| one.holds(scope)),
            Self::Any(any) => any.iter().any(|one| one.holds(scope)),
            Self::Not(inner) => !inner.holds(scope),
            Self::Test(test) => test.holds(scope),
        }
    }

    /// Collects all paths with their positions.
    pub(crate) fn paths<'t>(&'t self, found: &mut Vec<(usize, &'t Path)>) {
        match self {
            Self::All(all) | Self::Any(all) => all.iter().for_each(|one| one.paths(found)),
            Self::Not(inner) => inner.paths(found),
            Self::Test(test) => {
                found.push((test.at, &test.path));
                test.value.paths(found);
            }
        }
    }
}

const EXAMPLE: &str = "example: { path: state.files, op: gt, value: 100 }";

impl Test {
    fn parse(node: &Node, variable: Option<&str>, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let fields = Fields::parse(node, "a condition", problems)?;
        fields.check_known(&["path", "op", "value", "all", "any", "not"], problems);
        let path = text_of(node, "path", problems).and_then(|(at, text)| {
            let read = Path::parse(text, variable);
            let read = read.map_err(|(message, near)| Problem {
                hint: near.map(|near| format!("did you mean `{near}`?")),
                ..Problem::error(at, "bad_path", message)
            });
            Some((at, read.map_err(|problem| problems.push(problem)).ok()?))
        });
        let op = text_of(node, "op", problems).and_then(|(at, name)| {
            let problem =
                || Problem::unknown(at, "unknown_operator", "operator", name, Op::VARIANTS);
            name.parse().map_err(|_| problems.push(problem())).ok()
        });
        let mut pattern = None;
        let value = match (node.get("value"), op) {
            (Some(value), _) => {
                let template = Template::parse(value, variable, problems);
                check_value(op, &template, value, &mut pattern, problems);
                template
            }
            (None, Some(Op::Exists) | None) => Template::Literal(Value::Bool(true)),
            (None, Some(_)) => {
                let message = "the condition has no `value`";
                problems.push(Problem::error(node.at, "bad_condition", message).with_hint(EXAMPLE));
                Template::Literal(Value::Null)
            }
        };
        if problems.len() > before {
            return None;
        }
        let ((at, path), op) = (path?, op?);
        Some(Self {
            path,
            at,
            op,
            value,
            pattern,
        })
    }

    fn holds(&self, scope: &Scope<'_>) -> bool {
        let found = scope.get(&self.path);
        let value = &self.value.render(scope);
        if self.op == Op::Exists {
            let there = found.is_some_and(|found| !found.is_null());
            return there == value.as_bool().unwrap_or(true);
        }
        let found = &found.unwrap_or_default();
        match self.op {
            Op::Eq => equal(found, value),
            Op::Ne => !equal(found, value),
            Op::Gt => compare(found, value).is_some_and(Ordering::is_gt),
            Op::Gte => compare(found, value).is_some_and(Ordering::is_ge),
            Op::Lt => compare(found, value).is_some_and(Ordering::is_lt),
            Op::Lte => compare(found, value).is_some_and(Ordering::is_le),
            Op::In => contains(value, found),
            Op::NotIn => !contains(value, found),
            Op::Contains => contains(found, value),
            Op::StartsWith => texts(found, value).is_some_and(|(a, b)| a.starts_with(b)),
            Op::EndsWith => texts(found, value).is_some_and(|(a, b)| a.ends_with(b)),
            Op::Matches => texts(found, value).is_some_and(|(text, pattern)| match &self.pattern {
                Some(known) => known.is_match(text),
                None => Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text)),
            }),
            Op::Exists => false,
        }
    }
}

fn check_value(
    op: Option<Op>,
    template: &Template,
    node: &Node,
    pattern: &mut Option<Regex>,
    problems: &mut Vec<Problem>,
) {
    let Some(value) = template.as_literal() else {
        return;
    };
    let expected = match op {
        Some(Op::In | Op::NotIn) if !value.is_array() && !value.is_object() => "a list",
        Some(Op::StartsWith | Op::EndsWith | Op::Matches) if !value.is_string() => "a string",
        Some(Op::Exists) if !value.is_boolean() => "true or false",
        Some(Op::Gt | Op::Gte | Op::Lt | Op::Lte) if !value.is_number() && !value.is_string() => {
            "a number or a string"
        }
        Some(Op::Matches) => {
            match Regex::new(value.as_str().unwrap_or_default()) {
                Ok(read) => *pattern = Some(read),
                Err(error) => {
                    let last = error.to_string();
                    let last = last.lines().last().unwrap_or_default();
                    let last = last.trim_start_matches("error: ");
                    let message = format!("invalid pattern: {last}");
                    problems.push(Problem::error(node.at, "bad_pattern", message));
                }
            }
            return;
        }
        _ => return,
    };
    let message = format!("this operator expects {expected}, not {}", node.kind());
    problems.push(Problem::error(node.at, "wrong_type", message));
}

fn text_of<'n>(
    node: &'n Node,
    name: &str,
    problems: &mut Vec<Problem>,
) -> Option<(usize, &'n str)> {
    match node.get(name) {
        Some(Node {
            at,
            data: Data::Text(text),
        }) => Some((*at, text)),
        Some(other) => {
            let message = format!("`{name}` must be a string, not {}", other.kind());
            problems.push(Problem::error(other.at, "wrong_type", message));
            None
        }
        None => {
            let message = format!("the condition has no `{name}`");
            problems.push(Problem::error(node.at, "bad_condition", message).with_hint(EXAMPLE));
            None
        }
    }
}

/// Reads a number or a string that contains one, because programs print strings.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.partial_cmp(&b),
        _ => texts(a, b).map(|(a, b)| a.cmp(b)),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        _ => a == b,
    }
}

fn contains(all: &Value, one: &Value) -> bool {
    match (all, one) {
        (Value::Array(items), _) => items.iter().any(|item| equal(item, one)),
        (Value::Object(fields), Value::String(name)) => fields.contains_key(name),
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        _ => false,
    }
}

fn texts<'v>(a: &'v Value, b: &'v Value) -> Option<(&'v str, &'v str)> {
    Some((a.as_str()?, b.as_str()?))
}

#[cfg(test)]
mod tests;
