//! Type checks of the metadata fields that all items share.

use std::collections::BTreeMap;

use super::error::{Problem, truncate};
use super::node::{Data, Node};
use rye_protocol::{EffectClass, Risk};

/// The type of a field. Null is always allowed and means that the field is absent.
#[derive(Debug, Clone, Copy)]
enum Shape {
    String,
    Strings,
    Flag,
    Seconds,
    Mapping,
    /// A mapping, or a list of mappings.
    Mappings,
    /// A mapping by name, or a list.
    Declarations,
    RiskLevel,
    Effect,
    Anything,
}

/// All shared fields. An extractor table cannot name others.
const FIELDS: &[(&str, Shape)] = &[
    ("anchor", Shape::Mapping),
    ("category", Shape::String),
    ("child_constraints", Shape::Mapping),
    ("config", Shape::Mapping),
    ("config_resolve", Shape::Mappings),
    ("config_schema", Shape::Mapping),
    ("description", Shape::String),
    ("effect", Shape::Effect),
    ("env_config", Shape::Mapping),
    ("executor_id", Shape::String),
    ("inputs", Shape::Declarations),
    ("name", Shape::String),
    ("outputs", Shape::Declarations),
    ("reads", Shape::Strings),
    ("requires_approval", Shape::Flag),
    ("requires_env", Shape::Strings),
    ("risk_level", Shape::RiskLevel),
    ("sandbox", Shape::Anything),
    ("tags", Shape::Strings),
    ("timeout", Shape::Seconds),
    ("title", Shape::String),
    ("tool_type", Shape::String),
    ("verify_deps", Shape::Mapping),
    ("version", Shape::String),
    ("writes", Shape::Strings),
];

/// The names of the metadata fields that all items share.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name)
}

/// Checks all shared fields that are present. Reports the first error in the file.
pub(super) fn check_fields(fields: &BTreeMap<String, Node>) -> Result<(), Problem> {
    let mut problems = Vec::new();
    for (name, shape) in FIELDS {
        if let Some(node) = fields.get(*name) {
            problems.extend(check_field(name, *shape, node).err());
        }
    }
    match problems.into_iter().min_by_key(|problem| problem.at) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

impl Shape {
    /// The expected value, for messages.
    fn description(self) -> String {
        match self {
            Self::String => "a string".to_owned(),
            Self::Strings => "a list of strings".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Seconds => "a number of seconds".to_owned(),
            Self::Mapping => "a mapping".to_owned(),
            Self::Mappings => "a mapping or a list of mappings".to_owned(),
            Self::Declarations => "a mapping or a list".to_owned(),
            Self::RiskLevel => one_of(Risk::ALL.iter().map(|level| level.as_str())),
            Self::Effect => one_of(EffectClass::ALL.iter().map(|effect| effect.as_str())),
            Self::Anything => "any value".to_owned(),
        }
    }
}

fn check_field(name: &str, shape: Shape, node: &Node) -> Result<(), Problem> {
    let label = format!("`{name}`");
    let element_label = format!("each of `{name}`");
    match (shape, &node.data) {
        (_, Data::Null)
        | (Shape::Anything, _)
        | (Shape::String, Data::Text(_))
        | (Shape::Flag, Data::Bool(_))
        | (Shape::Mapping | Shape::Mappings | Shape::Declarations, Data::Map(_))
        | (Shape::Declarations, Data::List(_)) => Ok(()),
        (Shape::Strings, Data::List(items)) => items.iter().try_for_each(|item| match item.data {
            Data::Text(_) => Ok(()),
            _ => Err(mismatch(&element_label, Shape::String, item)),
        }),
        (Shape::Mappings, Data::List(items)) => items.iter().try_for_each(|item| match item.data {
            Data::Map(_) => Ok(()),
            _ => Err(mismatch(&element_label, Shape::Mapping, item)),
        }),
        (Shape::Seconds, Data::Number(seconds)) => match seconds.as_f64() {
            Some(seconds) if seconds > 0.0 => Ok(()),
            _ => Err(Problem::new(
                node.at,
                format!("{label} must be more than 0 seconds"),
            )),
        },
        (Shape::RiskLevel, Data::Text(text)) if Risk::from_name(text).is_some() => Ok(()),
        (Shape::Effect, Data::Text(text)) if EffectClass::from_name(text).is_some() => Ok(()),
        _ => Err(mismatch(&label, shape, node)),
    }
}

fn mismatch(label: &str, shape: Shape, node: &Node) -> Problem {
    let found = match (&node.data, shape) {
        (Data::Text(text), Shape::RiskLevel | Shape::Effect) => format!("`{}`", truncate(text)),
        _ => node.kind().to_owned(),
    };
    let message = format!("{label} must be {}, not {found}", shape.description());
    let problem = Problem::new(node.at, message);
    match (&node.data, shape) {
        (Data::Number(number), Shape::String) => {
            problem.hint(format!("write it in quotes: \"{number}\""))
        }
        (Data::Bool(flag), Shape::String) => {
            problem.hint(format!("write it in quotes: \"{flag}\""))
        }
        (Data::Text(text), Shape::Strings) if text.chars().all(|c| !c.is_control()) => {
            let items: Vec<_> = text
                .split(',')
                .map(|item| format!("\"{}\"", item.trim()))
                .collect();
            problem.hint(format!(
                "write it as a list: [{}]",
                truncate(&items.join(", "))
            ))
        }
        _ => problem,
    }
}

fn one_of(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<_> = names.collect();
    format!("one of {}", names.join(", "))
}
