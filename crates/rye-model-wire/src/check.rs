//! What all providers are strict about, and how to look at it.

use serde_json::Value;

/// The value at a pointer, as a list.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    let list = value.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice)
        .ok_or_else(|| format!("`{name}` is no list: {value}"))
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, String> {
    let text = value.get(name).and_then(Value::as_str);
    text.ok_or_else(|| format!("`{name}` is no text: {value}"))
}

pub(crate) fn want(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// A text that says something.
pub(crate) fn not_blank(value: &Value, name: &str) -> Result<(), String> {
    let blank = text(value, name)?.trim().is_empty();
    want(!blank, || format!("`{name}` must not be blank: {value}"))
}

/// An id or a name of at most so many plain characters.
pub(crate) fn plain(text: &str, longest: usize) -> Result<(), String> {
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let is_plain = (1..=longest).contains(&text.len()) && text.chars().all(fits);
    want(is_plain, || {
        format!("`{text}` does not match ^[a-zA-Z0-9_-]{{1,{longest}}}$")
    })
}

/// Each only once in a whole request.
#[derive(Default)]
pub(crate) struct Once(std::collections::BTreeSet<String>);

impl Once {
    pub(crate) fn more(&mut self, id: &str) -> Result<(), String> {
        want(self.0.insert(id.to_owned()), || {
            format!("`{id}` is there twice")
        })
    }
}

/// Exactly the results that were asked for, in any order.
pub(crate) fn same(asked: &[String], answered: &[String]) -> Result<(), String> {
    let sorted = |all: &[String]| {
        let mut all = all.to_vec();
        all.sort();
        all
    };
    want(sorted(asked) == sorted(answered), || {
        format!("calls {asked:?} have results {answered:?}")
    })
}
