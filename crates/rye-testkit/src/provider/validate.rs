//! Checks of request bodies that all providers make.

use serde_json::Value;

/// A required field that must be a list.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    let list = value.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice)
        .ok_or_else(|| format!("`{name}` is not a list: {value}"))
}

/// A required field that must be a string.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, String> {
    let text = value.get(name).and_then(Value::as_str);
    text.ok_or_else(|| format!("`{name}` is not a string: {value}"))
}

/// Fails with a message unless a condition holds.
pub(crate) fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// A required string that must not be blank.
pub(crate) fn not_blank(value: &Value, name: &str) -> Result<(), String> {
    let blank = text(value, name)?.trim().is_empty();
    ensure(!blank, || format!("`{name}` must not be blank: {value}"))
}

/// An id or name of at most `max_len` letters, digits, `_` or `-`.
pub(crate) fn identifier(text: &str, max_len: usize) -> Result<(), String> {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let is_valid = (1..=max_len).contains(&text.len()) && text.chars().all(is_allowed);
    ensure(is_valid, || {
        format!("`{text}` does not match ^[a-zA-Z0-9_-]{{1,{max_len}}}$")
    })
}

/// Call ids of a request, each of which must be unique.
#[derive(Default)]
pub(crate) struct UniqueIds(std::collections::BTreeSet<String>);

impl UniqueIds {
    pub(crate) fn insert(&mut self, id: &str) -> Result<(), String> {
        ensure(self.0.insert(id.to_owned()), || {
            format!("duplicate id `{id}`")
        })
    }
}

/// Whether each call has exactly one result, in any order.
pub(crate) fn same_ids(calls: &[String], results: &[String]) -> Result<(), String> {
    let sorted = |all: &[String]| {
        let mut all = all.to_vec();
        all.sort();
        all
    };
    ensure(sorted(calls) == sorted(results), || {
        format!("calls {calls:?} have results {results:?}")
    })
}
