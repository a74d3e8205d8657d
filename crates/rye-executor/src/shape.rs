//! Values of a description, in the shape that they must have.
//!
//! What is misspelt must not pass for what is not there: a list that is none
//! would name nothing to verify. The errors are sentences.

use serde_json::Value;

/// A text, if there is one.
pub(crate) fn text<'v>(about: &'v Value, key: &str) -> Result<Option<&'v str>, String> {
    match about.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` must be a text")),
    }
}

/// A list of texts, if there is one.
pub(crate) fn texts(about: &Value, key: &str) -> Result<Option<Vec<String>>, String> {
    let wrong = || format!("`{key}` must be a list of texts");
    match about.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or_else(wrong).map(Some)
        }
        Some(_) => Err(wrong()),
    }
}

/// True or false, and which of them where it is not said.
pub(crate) fn flag(about: &Value, key: &str, otherwise: bool) -> Result<bool, String> {
    match about.get(key) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("`{key}` must be true or false")),
    }
}
