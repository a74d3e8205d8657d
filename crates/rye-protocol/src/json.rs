//! JSON that keeps integers of more than 64 bits: `serde_json` parses them as floats, with other
//! digits. Its feature `arbitrary_precision` would keep them, but then no number inside an
//! internally tagged or flattened type can be deserialized from text.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::{Number, Value};

/// Digits of the smallest integer that may have more than 64 bits.
const MIN_DIGITS: usize = 19;

/// Parses a JSON text. An integer of more than 64 bits becomes a string with the same digits.
///
/// ```
/// let value = rye_protocol::json::parse("[1, 1234567890123456789012]")?;
/// assert_eq!(value, serde_json::json!([1, "1234567890123456789012"]));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(&quote_large_integers(text))
}

/// Whether a text is an integer of more than 64 bits as JSON writes it.
pub fn is_large_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() >= MIN_DIGITS
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u64>().is_err()
        && text.parse::<i64>().is_err()
}

/// Writes a value as JSON. Strings at these JSON pointers that are integers of more than 64 bits
/// become numbers.
pub fn write_with_integers(value: &Value, pointers: &BTreeSet<String>) -> String {
    let mut text = String::new();
    write(value, &mut String::new(), pointers, &mut text);
    text
}

fn write(value: &Value, pointer: &mut String, integers: &BTreeSet<String>, text: &mut String) {
    let length = pointer.len();
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                let _ = write!(pointer, "/{index}");
                write(item, pointer, integers, text);
                pointer.truncate(length);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (index, (name, field)) in fields.iter().enumerate() {
                let separator = if index == 0 { "" } else { "," };
                let _ = write!(text, "{separator}{}:", Value::from(name.as_str()));
                let _ = write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1"));
                write(field, pointer, integers, text);
                pointer.truncate(length);
            }
            text.push('}');
        }
        Value::String(digits)
            if integers.contains(pointer.as_str()) && is_large_integer(digits) =>
        {
            text.push_str(digits);
        }
        _ => {
            let _ = write!(text, "{value}");
        }
    }
}

/// Puts integers of more than 64 bits in quotes, so that their digits survive parsing. Does not
/// change a text that is not JSON.
pub fn quote_large_integers(text: &str) -> Cow<'_, str> {
    let mut quoted = String::new();
    let mut end = 0;
    for range in large_integers(text) {
        quoted.push_str(&text[end..range.start]);
        quoted.extend(["\"", &text[range.clone()], "\""]);
        end = range.end;
    }
    // In quotes, an integer could be a key.
    if end == 0 || serde_json::from_str::<IgnoredAny>(text).is_err() {
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
                    if is_large_integer(&text[start..at]) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_beyond_64_bits_keep_their_digits_and_other_numbers_do_not_change() {
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
        for (text, value) in [
            ("18446744073709551616", json!("18446744073709551616")),
            (
                r#"{"a":-9223372036854775809}"#,
                json!({"a": "-9223372036854775809"}),
            ),
            (
                "[123456789012345678901234567890, 1]",
                json!(["123456789012345678901234567890", 1]),
            ),
        ] {
            assert_eq!(parse(text).unwrap(), value, "{text}");
        }
        assert_eq!(parse(&"9".repeat(400)).unwrap(), json!("9".repeat(400)));
    }

    #[test]
    fn what_is_not_json_does_not_become_json() {
        for text in [
            "{",
            "{123456789012345678901: 1}",
            "--123456789012345678901",
            "00123456789012345678901",
            "1-23456789012345678901",
            "[123456789012345678901",
            "123456789012345678901x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn integers_are_written_at_their_pointers_only() {
        let large = "123456789012345678901";
        let value = json!({"a/b": [large, large, 1], "c": large, "d": {"~\"": large}, "e": null});
        let pointers = ["/a~1b/1", "/d/~0\"", "/e", "/x"].map(str::to_owned).into();
        let text = write_with_integers(&value, &pointers);
        let expected = r#"{"a/b":["123456789012345678901",123456789012345678901,1],"c":"123456789012345678901","d":{"~\"":123456789012345678901},"e":null}"#;
        assert_eq!(text, expected);
        assert_eq!(parse(&text).unwrap(), value);
        assert_eq!(
            write_with_integers(&value, &BTreeSet::new()),
            value.to_string()
        );
    }

    #[test]
    fn numbers_that_may_have_lost_digits_are_found() {
        let found = |value: &Value| find_large_number(value).is_some();
        assert!(found(&json!({ "a": [1, 1.234e29] })));
        assert!(found(&json!(-1e19)));
        assert!(!found(&json!([u64::MAX, i64::MIN, 1.5, "1e30", null])));
    }
}
