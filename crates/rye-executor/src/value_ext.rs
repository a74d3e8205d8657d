//! Typed access to JSON values in an item's metadata.
//!
//! A field of the wrong type is an error rather than absent: ignoring a misspelt list would
//! silently verify nothing.

use serde_json::Value;

/// Reads an optional string field.
pub(crate) fn text<'v>(object: &'v Value, key: &str) -> Result<Option<&'v str>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` must be a string")),
    }
}

/// Reads an optional list of strings.
pub(crate) fn texts(object: &Value, key: &str) -> Result<Option<Vec<String>>, String> {
    let invalid = || format!("`{key}` must be a list of strings");
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or_else(invalid).map(Some)
        }
        Some(_) => Err(invalid()),
    }
}

/// Reads a boolean field that has a default.
pub(crate) fn flag(object: &Value, key: &str, default: bool) -> Result<bool, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("`{key}` must be true or false")),
    }
}

/// Formats a value for insertion into a text: a string unchanged, other values as JSON.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
