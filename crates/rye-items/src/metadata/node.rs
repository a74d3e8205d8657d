//! Values with byte offsets, the common result of all parsers.

use serde_json::{Map, Number, Value};

/// The maximum nesting depth of values in all languages.
pub(super) const MAX_DEPTH: usize = 64;

/// A value and its byte offset in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The byte offset, for [`Excerpt::at_offset`](crate::Excerpt::at_offset).
    pub at: usize,
    /// The value.
    pub data: Data,
}

/// A JSON-like value.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Null, or no value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer or a float.
    Number(Number),
    /// A string.
    Text(String),
    /// A list of values.
    List(Vec<Node>),
    /// A mapping in file order.
    Map(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key, always a string.
    pub key: String,
    /// The byte offset of the key.
    pub at: usize,
    /// The value of the key.
    pub value: Node,
}

impl Node {
    pub(super) fn new(at: usize, data: Data) -> Self {
        Self { at, data }
    }

    pub(super) fn text(at: usize, text: impl Into<String>) -> Self {
        Self::new(at, Data::Text(text.into()))
    }

    /// Adds an offset to all positions, for a value that was parsed from a part of the file.
    pub(super) fn shifted(mut self, offset: usize) -> Self {
        self.shift(offset);
        self
    }

    fn shift(&mut self, offset: usize) {
        self.at += offset;
        match &mut self.data {
            Data::List(items) => items.iter_mut().for_each(|item| item.shift(offset)),
            Data::Map(entries) => {
                for entry in entries {
                    entry.at += offset;
                    entry.value.shift(offset);
                }
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => {}
        }
    }

    /// The value of a key, if this is a mapping that contains it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.data {
            Data::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The type of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.data {
            Data::Null => "null",
            Data::Bool(true) => "true",
            Data::Bool(false) => "false",
            Data::Number(_) => "a number",
            Data::Text(_) => "a string",
            Data::List(_) => "a list",
            Data::Map(_) => "a mapping",
        }
    }

    /// Converts to JSON, without positions.
    pub fn into_value(self) -> Value {
        match self.data {
            Data::Null => Value::Null,
            Data::Bool(flag) => Value::Bool(flag),
            Data::Number(number) => Value::Number(number),
            Data::Text(text) => Value::String(text),
            Data::List(items) => items.into_iter().map(Self::into_value).collect(),
            Data::Map(entries) => {
                let entries = entries.into_iter();
                Value::Object(
                    entries
                        .map(|entry| (entry.key, entry.value.into_value()))
                        .collect::<Map<_, _>>(),
                )
            }
        }
    }
}
