//! Redacts known secrets from texts, JSON values and streams.
//!
//! A [`Redactor`] finds a secret in any letter case and in the common encodings: JSON string
//! escapes, percent-encoding, base64 and hexadecimal.
//!
//! ```
//! use lillux::redact::Redactor;
//!
//! let redactor = Redactor::new(["open sesame"]);
//! assert_eq!(redactor.redact("the word is open sesame"), "the word is [redacted]");
//! assert_eq!(redactor.redact("Basic b3BlbiBzZXNhbWU="), "Basic [redacted]=");
//! ```

mod normalize;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base64ct::{Base64Unpadded, Base64UrlUnpadded, Encoding};
use memchr::memmem;
use parking_lot::RwLock;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use zeroize::Zeroizing;

use normalize::{NormalizedText, PatternEncoding};
pub use stream::RedactStream;

/// Placeholder that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Minimum length of a secret in bytes: shorter ones would match ordinary words.
const MIN_SECRET: usize = 4;
/// Minimum length of a secret to look for in base64 and hexadecimal: the part of the base64
/// that depends on a shorter one alone would match ordinary text.
const MIN_ENCODED_SECRET: usize = 6;

/// RFC 3986: everything but the unreserved characters, which no encoder escapes.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// What common encoders escape: all of it, all but `/` in paths, JavaScript's
/// `encodeURIComponent`, HTML forms.
const ESCAPED: [&AsciiSet; 4] = [
    RESERVED,
    &RESERVED.remove(b'/'),
    &RESERVED
        .remove(b'!')
        .remove(b'\'')
        .remove(b'(')
        .remove(b')')
        .remove(b'*'),
    &RESERVED.remove(b'*'),
];

/// A set of secrets to redact. Clones share the set.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<Patterns>>);

type Patterns = Arc<[Pattern]>;

/// One encoding of a secret, in lower case if the encoding ignores case.
#[derive(Clone, PartialEq, Eq)]
struct Pattern {
    encoding: PatternEncoding,
    bytes: Zeroizing<Vec<u8>>,
}

impl Redactor {
    /// Creates a redactor for these secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let redactor = Self::default();
        for secret in secrets {
            redactor.add(secret);
        }
        redactor
    }

    /// Adds a secret, without its trailing line breaks. A secret shorter than four bytes is
    /// ignored.
    pub fn add(&self, secret: &str) {
        let secret = secret.trim_end_matches(['\r', '\n']);
        if secret.len() < MIN_SECRET {
            return;
        }
        let mut all = self.0.write();
        let mut patterns = all.to_vec();
        patterns.extend(patterns_of(secret));
        patterns.sort_unstable_by(|a, b| (a.encoding, &*a.bytes).cmp(&(b.encoding, &*b.bytes)));
        patterns.dedup();
        *all = patterns.into();
    }

    /// Whether the set of secrets is empty.
    pub fn is_empty(&self) -> bool {
        self.patterns().is_empty()
    }

    /// Replaces the secrets in a text by [`REDACTED`].
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match redact_patterns(text.as_bytes(), &self.patterns()) {
            None => Cow::Borrowed(text),
            Some(redacted) => Cow::Owned(String::from_utf8_lossy(&redacted).into_owned()),
        }
    }

    /// Replaces the secrets in bytes by [`REDACTED`].
    pub fn redact_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        match redact_patterns(bytes, &self.patterns()) {
            None => Cow::Borrowed(bytes),
            Some(redacted) => Cow::Owned(redacted),
        }
    }

    /// Like [`redact`](Self::redact), but modifies the text.
    pub fn redact_in_place(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.redact(text) {
            *text = redacted;
        }
    }

    /// Redacts all strings of a JSON value, including keys.
    pub fn redact_value(&self, value: &mut Value) {
        if !self.is_empty() {
            self.redact_strings(value);
        }
    }

    fn redact_strings(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.redact_in_place(text),
            Value::Array(items) => items.iter_mut().for_each(|it| self.redact_strings(it)),
            Value::Object(fields) => {
                let has_secret = |name: &String| matches!(self.redact(name), Cow::Owned(_));
                if fields.keys().any(has_secret) {
                    let all = std::mem::take(fields).into_iter();
                    *fields = all
                        .map(|(name, value)| (self.redact(&name).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|it| self.redact_strings(it));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn patterns(&self) -> Patterns {
        Arc::clone(&self.0.read())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

/// All encodings of a secret to search for.
fn patterns_of(secret: &str) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    let mut add = |encoding, text: String| {
        if text.len() >= MIN_SECRET {
            let bytes = Zeroizing::new(text.into_bytes());
            patterns.push(Pattern { encoding, bytes });
        }
    };
    // The search ignores case for ASCII only, so other letters need both cases.
    let lower = secret.to_lowercase();
    let upper = secret.to_uppercase();
    for text in [secret, &lower, &upper] {
        let json = Value::String(text.to_owned()).to_string();
        add(PatternEncoding::Text, text.to_ascii_lowercase());
        let json = json.get(1..json.len() - 1).unwrap_or_default();
        add(PatternEncoding::Text, json.to_ascii_lowercase());
        for encoded in percent_encoded(text) {
            add(PatternEncoding::Text, encoded.to_ascii_lowercase());
        }
    }
    let bytes = secret.as_bytes();
    if bytes.len() >= MIN_ENCODED_SECRET {
        for offset in 0..3 {
            add(
                PatternEncoding::Base64,
                base64_core::<Base64Unpadded>(bytes, offset),
            );
            add(
                PatternEncoding::Base64,
                base64_core::<Base64UrlUnpadded>(bytes, offset),
            );
        }
        add(
            PatternEncoding::Base64,
            Base64Unpadded::encode_string(bytes),
        );
        add(
            PatternEncoding::Base64,
            Base64UrlUnpadded::encode_string(bytes),
        );
        for text in [secret, &lower, &upper] {
            let digits = text.bytes().map(|byte| format!("{byte:02x}"));
            add(PatternEncoding::Hex, digits.collect());
        }
    }
    patterns
}

/// The percent-encoded forms of a text that differ from it. HTML forms encode a space as `+`.
fn percent_encoded(text: &str) -> impl Iterator<Item = String> {
    let encoded = ESCAPED.map(|set| percent_encode(text.as_bytes(), set).to_string());
    let all = encoded.into_iter();
    let all = all.flat_map(|encoded| [encoded.replace("%20", "+"), encoded]);
    all.filter(move |encoded| encoded != text)
}

/// The base64 characters that depend on the secret alone if it is encoded together with other
/// bytes: `offset` bytes (modulo 3) before it and any number after it. Characters at the edges
/// share bits with the neighbours and are left out.
fn base64_core<E: Encoding>(secret: &[u8], offset: usize) -> String {
    let padded = [&[0; 2][..offset], secret].concat();
    let encoded = E::encode_string(&padded);
    let (start, end) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
    encoded.get(start..end).unwrap_or_default().to_owned()
}

/// Returns `None` if the text contains none of the patterns.
fn redact_patterns(text: &[u8], patterns: &[Pattern]) -> Option<Vec<u8>> {
    let found = find_spans(text, patterns);
    (!found.is_empty()).then(|| replace_spans(text, 0..text.len(), &found))
}

/// Start and end of each match in the text, sorted; overlapping matches are merged.
fn find_spans(text: &[u8], patterns: &[Pattern]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for encoding in PatternEncoding::ALL {
        let mut matching = patterns
            .iter()
            .filter(|it| it.encoding == encoding)
            .peekable();
        if matching.peek().is_none() {
            continue;
        }
        let normalized = NormalizedText::new(encoding, text);
        for pattern in matching {
            let starts = memmem::find_iter(&normalized.bytes, pattern.bytes.as_slice());
            found.extend(starts.map(|start| {
                let last = start + pattern.bytes.len() - 1;
                let (start, last) = (normalized.offset(start), normalized.offset(last));
                (start, last + 1)
            }));
        }
    }
    found.sort_unstable();
    found.dedup_by(|(start, end), (_, previous_end)| {
        let overlaps = *start < *previous_end;
        if overlaps {
            *previous_end = (*previous_end).max(*end);
        }
        overlaps
    });
    found
}

/// Copies a part of a text with [`REDACTED`] in place of the spans.
fn replace_spans(text: &[u8], part: Range<usize>, spans: &[(usize, usize)]) -> Vec<u8> {
    let mut redacted = Vec::with_capacity(part.len());
    let mut from = part.start;
    for (start, end) in spans {
        let (start, end) = ((*start).max(from), (*end).min(part.end));
        if start >= end {
            continue;
        }
        redacted.extend_from_slice(&text[from..start]);
        redacted.extend_from_slice(REDACTED.as_bytes());
        from = end;
    }
    redacted.extend_from_slice(&text[from..part.end]);
    redacted
}

#[cfg(test)]
mod tests;
