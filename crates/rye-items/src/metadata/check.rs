//! The fields that items share, and the types they must have.

use std::collections::BTreeMap;

use super::error::{Problem, brief};
use super::node::{Data, Node};
use super::typed::{Effect, RiskLevel};

/// What the value of a field may be. Null is always allowed, and means none.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Texts,
    Flag,
    Seconds,
    Mapping,
    /// One mapping, or several in a list.
    Mappings,
    /// Declarations by name, or in a list.
    Declarations,
    RiskLevel,
    Effect,
    Anything,
}

/// Every field that a table of places may name.
const FIELDS: &[(&str, Shape)] = &[
    ("anchor", Shape::Mapping),
    ("category", Shape::Text),
    ("child_constraints", Shape::Mapping),
    ("config", Shape::Mapping),
    ("config_resolve", Shape::Mappings),
    ("config_schema", Shape::Mapping),
    ("description", Shape::Text),
    ("effect", Shape::Effect),
    ("env_config", Shape::Mapping),
    ("executor_id", Shape::Text),
    ("inputs", Shape::Declarations),
    ("name", Shape::Text),
    ("outputs", Shape::Declarations),
    ("reads", Shape::Texts),
    ("requires_approval", Shape::Flag),
    ("requires_env", Shape::Texts),
    ("risk_level", Shape::RiskLevel),
    ("sandbox", Shape::Anything),
    ("tags", Shape::Texts),
    ("timeout", Shape::Seconds),
    ("title", Shape::Text),
    ("tool_type", Shape::Text),
    ("verify_deps", Shape::Mapping),
    ("version", Shape::Text),
    ("writes", Shape::Texts),
];

/// The names of the shared fields.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name)
}

/// Checks every shared field that is there.
pub(super) fn all(fields: &BTreeMap<String, Node>) -> Result<(), Problem> {
    let mut problems = Vec::new();
    for (name, shape) in FIELDS {
        if let Some(node) = fields.get(*name) {
            problems.extend(one(name, *shape, node).err());
        }
    }
    // The first in the file, which is the one that a reader meets first.
    match problems.into_iter().min_by_key(|problem| problem.at) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

fn one(name: &str, shape: Shape, node: &Node) -> Result<(), Problem> {
    let wrong = |expected: &str| Err(mismatch(name, expected, node));
    match (shape, &node.data) {
        (_, Data::Null)
        | (Shape::Anything, _)
        | (Shape::Text, Data::Text(_))
        | (Shape::Flag, Data::Bool(_))
        | (Shape::Mapping | Shape::Mappings | Shape::Declarations, Data::Map(_))
        | (Shape::Declarations, Data::List(_)) => Ok(()),
        (Shape::Texts, Data::List(items)) => items.iter().try_for_each(|item| match item.data {
            Data::Text(_) => Ok(()),
            _ => Err(mismatch(&format!("each of {name}"), "a text", item)),
        }),
        (Shape::Mappings, Data::List(items)) => items.iter().try_for_each(|item| match item.data {
            Data::Map(_) => Ok(()),
            _ => Err(mismatch(&format!("each of {name}"), "a mapping", item)),
        }),
        (Shape::Seconds, Data::Number(seconds)) => match seconds.as_f64() {
            Some(seconds) if seconds > 0.0 => Ok(()),
            _ => Err(Problem::new(
                node.at,
                format!("`{name}` must be more than 0 seconds"),
            )),
        },
        (Shape::RiskLevel, Data::Text(text)) if RiskLevel::from_name(text).is_some() => Ok(()),
        (Shape::Effect, Data::Text(text)) if Effect::from_name(text).is_some() => Ok(()),
        (Shape::Text, _) => wrong("a text"),
        (Shape::RiskLevel, _) => wrong(&one_of(RiskLevel::ALL.iter().map(|level| level.as_str()))),
        (Shape::Effect, _) => wrong(&one_of(Effect::ALL.iter().map(|effect| effect.as_str()))),
        (Shape::Texts, _) => wrong("a list of texts"),
        (Shape::Flag, _) => wrong("true or false"),
        (Shape::Seconds, _) => wrong("a number of seconds"),
        (Shape::Mapping, _) => wrong("a mapping"),
        (Shape::Mappings, _) => wrong("a mapping or a list of mappings"),
        (Shape::Declarations, _) => wrong("a mapping or a list"),
    }
}

fn mismatch(name: &str, expected: &str, node: &Node) -> Problem {
    let name = match name.rsplit_once(' ') {
        Some((each, name)) => format!("{each} `{name}`"),
        None => format!("`{name}`"),
    };
    let found = match &node.data {
        Data::Text(text) if expected.starts_with("one of") => format!("`{}`", brief(text)),
        _ => node.kind().to_owned(),
    };
    let message = format!("{name} must be {expected}, not {found}");
    let problem = Problem::new(node.at, message);
    match (&node.data, expected) {
        (Data::Number(number), "a text") => {
            problem.hint(format!("write it in quotes: \"{number}\""))
        }
        (Data::Bool(flag), "a text") => problem.hint(format!("write it in quotes: \"{flag}\"")),
        (Data::Text(text), "a list of texts") if text.chars().all(|c| !c.is_control()) => {
            let items: Vec<_> = text
                .split(',')
                .map(|item| format!("\"{}\"", item.trim()))
                .collect();
            problem.hint(format!(
                "write it as a list: [{}]",
                brief(&items.join(", "))
            ))
        }
        _ => problem,
    }
}

fn one_of(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<_> = names.collect();
    format!("one of {}", names.join(", "))
}
