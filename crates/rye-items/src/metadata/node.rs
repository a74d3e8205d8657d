//! Values with their places, as every parser gives them.

use serde_json::{Map, Number, Value};

/// How deep values may be nested, in any language.
pub(super) const DEEPEST: usize = 64;

/// A value and the byte of the file where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The byte of the file, for [`Excerpt::at`](crate::Excerpt::at).
    pub at: usize,
    /// What is there.
    pub data: Data,
}

/// The value itself: what JSON can hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<Entry>),
}

/// A key of a mapping, where it is, and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The byte of the file where it is.
    pub at: usize,
    /// What it stands for.
    pub value: Node,
}

impl Node {
    pub(super) fn new(at: usize, data: Data) -> Self {
        Self { at, data }
    }

    pub(super) fn text(at: usize, text: impl Into<String>) -> Self {
        Self::new(at, Data::Text(text.into()))
    }

    /// The same value, found in a part of the file that begins at a byte.
    pub(super) fn after(mut self, offset: usize) -> Self {
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

    /// The value of a key, where this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.data {
            Data::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.data {
            Data::Null => "nothing",
            Data::Bool(true) => "true",
            Data::Bool(false) => "false",
            Data::Number(_) => "a number",
            Data::Text(_) => "a text",
            Data::List(_) => "a list",
            Data::Map(_) => "a mapping",
        }
    }

    /// The value without its places.
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
