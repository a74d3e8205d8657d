//! YAML as a tree in which every node has a position.

use std::fmt;

use rye_items::Position;
use rye_model::yaml_error;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    List,
    Map(Vec<(String, Position, Node)>),
}

#[derive(Debug)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    Number,
    Text(String),
}

impl Node {
    /// Parses a document. An error has a position if the parser reports one.
    pub(super) fn parse(text: &str) -> Result<Self, (String, Option<Position>)> {
        let read: Result<Spanned<Value>, _> = serde_saphyr::from_str(text);
        match read {
            Ok(spanned) => Ok(spanned.into()),
            Err(error) => {
                let position = error.location().map(position);
                let message = yaml_error::message(&error);
                Err((format!("invalid YAML: {message}"), position))
            }
        }
    }
}

impl Value {
    /// Describes the value for an error message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Scalar(Scalar::Null) => "nothing".to_owned(),
            Self::Scalar(Scalar::Bool(value)) => format!("`{value}`"),
            Self::Scalar(Scalar::Integer(value)) => format!("`{value}`"),
            Self::Scalar(Scalar::Number) => "a number with a fraction".to_owned(),
            Self::Scalar(Scalar::Text(value)) if value.chars().count() > 60 => {
                "a longer string".to_owned()
            }
            Self::Scalar(Scalar::Text(value)) => format!("`{value}`"),
            Self::List => "a list".to_owned(),
            Self::Map(_) => "a mapping".to_owned(),
        }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self {
            position: position(spanned.referenced),
            value: spanned.value,
        }
    }
}

fn position(location: Location) -> Position {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    Position {
        line: number(location.line()),
        column: number(location.column()),
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Null))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Integer(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        Ok(Value::Scalar(Scalar::Integer(value)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(Scalar::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        while list.next_element::<Value>()?.is_some() {}
        Ok(Value::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Value>>()? {
            entries.push((key.value, position(key.referenced), value.into()));
        }
        Ok(Value::Map(entries))
    }
}
