//! Canonical JSON: one text for one value, so that the value has one hash.
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
//!   surrogate pair. `/` stands as it is.
//! - A number written without `.` and exponent is an integer, of any size, and
//!   keeps its digits; `-0` becomes `0`.
//! - Every other number is a 64-bit float, written as the shortest digits that
//!   read back as the same float, always with `.` or an exponent: `1.0`,
//!   `-0.0`, `0.0001`, `1e-05`, `1234567890123456.0`, `1e+16`. A number beyond
//!   the largest float is refused: it has no text that reads back.
//!
//! Arrays and objects nest up to [`MAX_DEPTH`] levels. What is not JSON, is
//! not UTF-8 or holds half a surrogate pair is refused and never repaired.
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

/// How deep arrays and objects nest at most. `serde_json` reads no deeper, so
/// that whatever has a canonical text can be read back by it.
pub const MAX_DEPTH: usize = 127;

/// A text or value that has no canonical JSON.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// The text is not UTF-8.
    #[error("not UTF-8 at line {line} column {column}")]
    NotUtf8 {
        /// Counted from 1.
        line: usize,
        /// Counted in bytes, from 1.
        column: usize,
    },
    /// The text is not one JSON value; the source says where.
    #[error("not JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// It is JSON, with something in it that has no canonical form.
    #[error("{reason} at {}", if pointer.is_empty() { "the top" } else { pointer.as_str() })]
    Refused {
        /// Where, as a JSON pointer (RFC 6901): `/items/3/name`; empty for the whole.
        pointer: String,
        /// What it is.
        reason: Reason,
    },
    /// A Rust value that serde cannot write as JSON.
    #[error("cannot be written as JSON: {0}")]
    Serialize(#[source] serde_json::Error),
}

/// Why a piece of well-formed JSON has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Two members of one object have the same key.
    #[error("a second member named {0:?}")]
    DuplicateKey(String),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A `\uD800`–`\uDFFF` escape without its other half.
    #[error("half a surrogate pair in a string")]
    LoneSurrogate,
    /// A number with a fraction or exponent that no 64-bit float comes near.
    #[error("a number too large for a float")]
    FloatOverflow,
}

/// The canonical text of a JSON text.
pub fn canonicalize(text: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let mut lines = text[..error.valid_up_to()].split(|&b| b == b'\n');
        CanonicalError::NotUtf8 {
            line: lines.clone().count(),
            column: 1 + lines.next_back().map_or(0, <[u8]>::len),
        }
    })?;
    // This pass checks the syntax of the whole text, with places for errors;
    // what follows takes it apart level by level. Values are seen as raw text
    // because serde_json's own numbers lose digits beyond 64 bits.
    let raw: &RawValue = serde_json::from_str(text).map_err(CanonicalError::Syntax)?;
    let mut out = Vec::with_capacity(text.len());
    write_value(raw.get(), &Place::Top, 0, &mut out)?;
    Ok(out)
}

/// The canonical text of a value.
///
/// As everywhere in `serde_json`, a float that is not a number or infinite
/// becomes `null`: JSON has no word for it.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    canonicalize(&serde_json::to_vec(value).map_err(CanonicalError::Serialize)?)
}

fn write_value(
    raw: &str,
    place: &Place<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    // The text is known to be well-formed: its first byte tells what it is.
    match raw.as_bytes().first() {
        Some(b'{') => write_object(raw, place, depth + 1, out),
        Some(b'[') => write_array(raw, place, depth + 1, out),
        Some(b'"') => {
            text::write_string(&decode::<String>(raw, place)?, out);
            Ok(())
        }
        Some(b'-' | b'0'..=b'9') => {
            text::write_number(raw, out).map_err(|reason| place.refuse(reason))
        }
        _ => {
            out.extend_from_slice(raw.as_bytes());
            Ok(())
        }
    }
}

fn write_object(
    raw: &str,
    place: &Place<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    place.check(depth)?;
    let Members(mut members) = decode(raw, place)?;
    // The order of UTF-8 bytes is the order of code points.
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(place.refuse(Reason::DuplicateKey(pair[0].0.clone())));
    }
    out.push(b'{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text::write_string(key, out);
        out.push(b':');
        write_value(value.get(), &Place::Member(place, key), depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_array(
    raw: &str,
    place: &Place<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    place.check(depth)?;
    let items: Vec<&RawValue> = decode(raw, place)?;
    out.push(b'[');
    for (index, value) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_value(value.get(), &Place::Item(place, index), depth, out)?;
    }
    out.push(b']');
    Ok(())
}

/// Takes one level apart. The syntax was checked before, except that skipping
/// over a string does not look at surrogates: nothing else can fail here.
fn decode<'a, T: Deserialize<'a>>(raw: &'a str, place: &Place<'_>) -> Result<T, CanonicalError> {
    serde_json::from_str(raw).map_err(|_| place.refuse(Reason::LoneSurrogate))
}

/// Where in the value one is: a list on the call stack, which costs nothing
/// until there is an error to place.
enum Place<'a> {
    Top,
    Member(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn check(&self, depth: usize) -> Result<(), CanonicalError> {
        if depth > MAX_DEPTH {
            return Err(self.refuse(Reason::TooDeep));
        }
        Ok(())
    }

    fn refuse(&self, reason: Reason) -> CanonicalError {
        let pointer = self.to_string();
        CanonicalError::Refused { pointer, reason }
    }
}

impl fmt::Display for Place<'_> {
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

/// The members of an object as they stand, doubles included.
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
