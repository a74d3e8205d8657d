//! JSON without silent changes: `serde_json` parses an integer of more than 64 bits as a float, with
//! other digits. Its feature `arbitrary_precision` would keep them, but then no number inside an
//! internally tagged or flattened type can be deserialized from text.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Number, Value};

/// Why a JSON text cannot be parsed exactly.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
    /// An integer has more than 64 bits.
    #[error("the integer {0} has more than 64 bits; pass it as a string")]
    LargeInteger(String),
}

/// Parses a JSON text. Fails if an integer has more than 64 bits.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    let value = serde_json::from_str(text)?;
    match large_integers(text).next() {
        None => Ok(value),
        Some(range) => Err(JsonError::LargeInteger(text[range].to_owned())),
    }
}

/// Puts integers of more than 64 bits in quotes, so that their digits survive parsing. The text
/// must be JSON.
pub fn quote_large_integers(text: &str) -> Cow<'_, str> {
    let mut quoted = String::new();
    let mut end = 0;
    for range in large_integers(text) {
        quoted.push_str(&text[end..range.start]);
        quoted.extend(["\"", &text[range.clone()], "\""]);
        end = range.end;
    }
    if end == 0 {
        return Cow::Borrowed(text);
    }
    quoted.push_str(&text[end..]);
    Cow::Owned(quoted)
}

/// A number in a value that may have been an integer of more than 64 bits, for parsers of other
/// formats: they too turn it into a float, which has no fraction.
pub fn find_large_number(value: &Value) -> Option<&Number> {
    /// Floats from here on are beyond the integers of 64 bits.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            Some(number).filter(|it| it.as_f64().is_some_and(|it| it.abs() >= LIMIT))
        }
        Value::Array(items) => items.iter().find_map(find_large_number),
        Value::Object(fields) => fields.values().find_map(find_large_number),
        _ => None,
    }
}

/// The integers of more than 64 bits in a JSON text.
fn large_integers(text: &str) -> impl Iterator<Item = Range<usize>> {
    /// Digits of the smallest number that may not fit.
    const MIN_DIGITS: usize = 19;
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(byte) = bytes.get(at) {
            let start = at;
            at += 1;
            match byte {
                b'"' => at = string_end(bytes, at),
                b'-' | b'0'..=b'9' => {
                    let is_number =
                        |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                    at += bytes[at..].iter().take_while(is_number).count();
                    let number = &text[start..at];
                    let is_integer = !number.contains(['.', 'e', 'E']);
                    if at - start >= MIN_DIGITS && is_integer && !fits(number) {
                        return Some(start..at);
                    }
                }
                _ => {}
            }
        }
        None
    })
}

/// The offset behind a string whose content begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn fits(number: &str) -> bool {
    number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_beyond_64_bits_are_rejected_and_other_numbers_are_not() {
        for (text, value) in [
            ("18446744073709551615", json!(u64::MAX)),
            ("[-9223372036854775808]", json!([i64::MIN])),
            ("1e40", json!(1e40)),
            (
                "12345678901234567890.5",
                json!(12_345_678_901_234_567_890.5),
            ),
            (
                r#"{"123456789012345678901": "\"123456789012345678901"}"#,
                json!({"123456789012345678901": "\"123456789012345678901"}),
            ),
        ] {
            assert_eq!(parse(text).unwrap(), value, "{text}");
            assert_eq!(quote_large_integers(text), text);
        }
        for (text, large) in [
            ("18446744073709551616", "18446744073709551616"),
            ("{\"a\":-9223372036854775809}", "-9223372036854775809"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                matches!(&error, JsonError::LargeInteger(it) if it == large),
                "{error}"
            );
        }
        assert!(matches!(parse("{"), Err(JsonError::Syntax(_))));
    }

    #[test]
    fn numbers_that_may_have_lost_digits_are_found() {
        let found = |value: &Value| find_large_number(value).is_some();
        assert!(found(&json!({ "a": [1, 1.234e29] })));
        assert!(found(&json!(-1e19)));
        assert!(!found(&json!([u64::MAX, i64::MIN, 1.5, "1e30", null])));
    }

    #[test]
    fn quoted_integers_keep_their_digits() {
        let text = r#"{"a": [123456789012345678901234567890, 1], "b": -123456789012345678901}"#;
        let value: Value = serde_json::from_str(&quote_large_integers(text)).unwrap();
        let expected = json!({
            "a": ["123456789012345678901234567890", 1],
            "b": "-123456789012345678901",
        });
        assert_eq!(value, expected);
    }
}
