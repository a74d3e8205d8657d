//! Canonical JSON: each value has exactly one text, and so one hash.
//!
//! The text is what Python's `json.dumps(v, sort_keys=True, separators=(",", ":"))`
//! writes, byte for byte:
//!
//! - No space between tokens and no newline at the end.
//! - Members are sorted by key, code point by code point (which is not the
//!   order of UTF-16 units that RFC 8785 has). A key may not occur twice.
//! - Strings are ASCII. `"` and `\` are written `\"` and `\\`; newline, return,
//!   tab, backspace and form feed `\n \r \t \b \f`; every other character
//!   outside space to `~` is `\uXXXX` in lower case, those beyond U+FFFF as a
//!   surrogate pair. `/` is not escaped.
//! - A number without `.` and exponent is an integer of any size and keeps its
//!   digits; `-0` becomes `0`.
//! - Every other number is a 64-bit float, written with the fewest digits that
//!   parse to the same float, always with `.` or an exponent: `1.0`, `-0.0`,
//!   `0.0001`, `1e-05`, `1234567890123456.0`, `1e+16`. A number beyond the
//!   largest float is an error.
//!
//! Arrays and objects nest up to [`MAX_DEPTH`] levels. Text that is not JSON, is
//! not UTF-8 or contains a lone surrogate is an error and is never repaired.
//!
//! ```
//! let loose = r#"{ "b": [1.0, 1E2, 12345678901234567890123], "a": "né\/" }"#;
//! let canonical = lillux::canonical::canonicalize(loose.as_bytes())?;
//! assert_eq!(
//!     String::from_utf8_lossy(&canonical),
//!     r#"{"a":"n\u00e9/","b":[1.0,100.0,12345678901234567890123]}"#
//! );
//! # Ok::<(), lillux::canonical::CanonicalError>(())
//! ```

mod text;

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

pub(crate) use text::strings;

/// Maximum nesting depth: the limit of `serde_json`, so that it can parse every canonical text.
pub const MAX_DEPTH: usize = 127;

/// Error of writing canonical JSON.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// The text is not UTF-8.
    #[error("not UTF-8 at line {line} column {column}")]
    NotUtf8 {
        /// Line number, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// The text is not one JSON value; the source contains the position.
    #[error("not JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// A part of the JSON value has no canonical form.
    #[error("{reason} at {}", if pointer.is_empty() { "the top level" } else { pointer.as_str() })]
    Invalid {
        /// JSON pointer (RFC 6901) to the part, such as `/items/3/name`; empty for the whole
        /// value.
        pointer: String,
        /// Why the part has no canonical form.
        reason: Reason,
    },
    /// Serde cannot serialise the value as JSON.
    #[error("cannot serialise as JSON: {0}")]
    Serialize(#[source] serde_json::Error),
}

/// Why a part of well-formed JSON has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Two members of one object have the same key.
    #[error("duplicate key {0:?}")]
    DuplicateKey(String),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A `\uD800`–`\uDFFF` escape without its other half.
    #[error("lone surrogate in a string")]
    LoneSurrogate,
    /// A number with a fraction or exponent beyond the range of a 64-bit float.
    #[error("number too large for a 64-bit float")]
    FloatOverflow,
}

/// Converts JSON text to canonical JSON.
pub fn canonicalize(text: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let mut lines = text[..error.valid_up_to()].split(|&b| b == b'\n');
        CanonicalError::NotUtf8 {
            line: lines.clone().count(),
            column: 1 + lines.next_back().map_or(0, <[u8]>::len),
        }
    })?;
    // This pass checks the syntax of the whole text and reports positions. The next ones parse
    // it level by level, as raw text because serde_json's numbers lose digits beyond 64 bits.
    let raw: &RawValue = serde_json::from_str(text).map_err(CanonicalError::Syntax)?;
    let mut out = Vec::with_capacity(text.len());
    write_value(raw.get(), &Location::Top, 0, &mut out)?;
    Ok(out)
}

/// Serialises a value as canonical JSON.
///
/// As in `serde_json`, NaN and infinite floats become `null`.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    canonicalize(&serde_json::to_vec(value).map_err(CanonicalError::Serialize)?)
}

fn write_value(
    raw: &str,
    location: &Location<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    // The text is well-formed, so its first byte determines the type.
    match raw.as_bytes().first() {
        Some(b'{') => write_object(raw, location, depth + 1, out),
        Some(b'[') => write_array(raw, location, depth + 1, out),
        Some(b'"') => {
            text::write_string(&decode::<String>(raw, location)?, out);
            Ok(())
        }
        Some(b'-' | b'0'..=b'9') => {
            text::write_number(raw, out).map_err(|reason| location.error(reason))
        }
        _ => {
            out.extend_from_slice(raw.as_bytes());
            Ok(())
        }
    }
}

fn write_object(
    raw: &str,
    location: &Location<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    location.check_depth(depth)?;
    let Members(mut members) = decode(raw, location)?;
    // The order of UTF-8 bytes is the order of code points.
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(location.error(Reason::DuplicateKey(pair[0].0.clone())));
    }
    out.push(b'{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text::write_string(key, out);
        out.push(b':');
        write_value(value.get(), &Location::Member(location, key), depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_array(
    raw: &str,
    location: &Location<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    location.check_depth(depth)?;
    let items: Vec<&RawValue> = decode(raw, location)?;
    out.push(b'[');
    for (index, value) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_value(value.get(), &Location::Item(location, index), depth, out)?;
    }
    out.push(b']');
    Ok(())
}

/// Parses one level. The syntax was checked before except for surrogates in skipped strings, so
/// only these can fail here.
fn decode<'a, T: Deserialize<'a>>(
    raw: &'a str,
    location: &Location<'_>,
) -> Result<T, CanonicalError> {
    serde_json::from_str(raw).map_err(|_| location.error(Reason::LoneSurrogate))
}

/// A location in the value, as a linked list on the call stack. It is formatted only for errors.
enum Location<'a> {
    Top,
    Member(&'a Location<'a>, &'a str),
    Item(&'a Location<'a>, usize),
}

impl Location<'_> {
    fn check_depth(&self, depth: usize) -> Result<(), CanonicalError> {
        if depth > MAX_DEPTH {
            return Err(self.error(Reason::TooDeep));
        }
        Ok(())
    }

    fn error(&self, reason: Reason) -> CanonicalError {
        let pointer = self.to_string();
        CanonicalError::Invalid { pointer, reason }
    }
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Member(parent, key) => {
                write!(f, "{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// The members of an object in their order, including duplicates.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests;
