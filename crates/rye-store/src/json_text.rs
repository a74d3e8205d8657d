//! Conversion between records and their JSON text.

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rye_engine::store::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum nesting depth of a document, because parsing needs stack for every level. JSON
/// parsers usually stop at half of it, so only programs can exceed it.
const MAX_DEPTH: usize = 256;

/// JSON for a text column.
#[derive(Debug, Default)]
pub(crate) struct JsonText(pub(crate) Vec<u8>);

impl ToSql for JsonText {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

impl JsonText {
    /// An empty text.
    pub(crate) fn new() -> Self {
        // Most documents fit, so that the buffer need not grow.
        Self(Vec::with_capacity(1000))
    }

    /// The text as a string.
    #[cfg(feature = "cluster")]
    pub(crate) fn into_string(self) -> Result<String, StoreError> {
        let invalid = |error: std::string::FromUtf8Error| StoreError::Unreadable(error.to_string());
        String::from_utf8(self.0).map_err(invalid)
    }

    /// Serialises a value to the end of the text.
    pub(crate) fn append(&mut self, value: &impl Serialize) -> Result<(), StoreError> {
        let Self(text) = self;
        let before = text.len();
        serde_json::to_writer(&mut *text, value).map_err(|error| {
            StoreError::Unreadable(format!("cannot serialise the record: {error}"))
        })?;
        let written = text.get(before..).unwrap_or_default();
        // Counting brackets is fast and rules out excessive depth for most documents.
        if count_brackets(written) > MAX_DEPTH && depth(written) > MAX_DEPTH {
            let message = format!("the record nests deeper than {MAX_DEPTH} levels");
            return Err(StoreError::Unreadable(message));
        }
        Ok(())
    }
}

/// Serialises a value.
pub(crate) fn encode(value: &impl Serialize) -> Result<JsonText, StoreError> {
    let mut text = JsonText::new();
    text.append(value)?;
    Ok(text)
}

/// Parses a value.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    let mut parser = serde_json::Deserializer::from_str(text);
    // `encode` has enforced `MAX_DEPTH`.
    parser.disable_recursion_limit();
    T::deserialize(&mut parser).map_err(|error| {
        let start: String = text.chars().take(120).collect();
        StoreError::Unreadable(format!("{error}, in {start}"))
    })
}

/// Counts opening brackets and braces, including those in strings. The sum of a chunk fits into
/// a byte, which the compiler vectorises.
fn count_brackets(json: &[u8]) -> usize {
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{');
    let chunks = json.chunks(usize::from(u8::MAX));
    chunks
        .map(|chunk| usize::from(chunk.iter().map(opens).sum::<u8>()))
        .sum()
}

/// Nesting depth of valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut level, mut deepest) = (0usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                level += 1;
                deepest = deepest.max(level);
            }
            b'}' | b']' if !quoted => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count_as_depth() {
        assert_eq!(depth(br#"{"a":["[[[[","\"[["]}"#), 2);
        assert_eq!(depth(b"7"), 0);
        assert_eq!(depth(b"[[],[[]]]"), 3);
    }

    #[test]
    fn all_opening_brackets_are_counted() {
        assert_eq!(count_brackets(br#"{"a":["[[[[","\"[["],"{":"}"}"#), 9);
        assert_eq!(count_brackets("[[]}{;Z{|".repeat(300).as_bytes()), 4 * 300);
        assert_eq!(count_brackets(&[b'['; 1_000]), 1_000);
    }

    #[test]
    fn values_that_nest_too_deep_are_not_written() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let JsonText(fits) = encode(&nested(MAX_DEPTH)).unwrap();
        let fits = String::from_utf8(fits).unwrap();
        assert_eq!(
            decode::<serde_json::Value>(&fits).unwrap(),
            nested(MAX_DEPTH)
        );
        assert!(encode(&nested(MAX_DEPTH + 1)).is_err());
    }
}
