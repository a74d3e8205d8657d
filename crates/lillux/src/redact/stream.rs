//! Redacts a stream that arrives in pieces.

use std::fmt;

use super::normalize::{NormalizedText, PatternEncoding};
use super::{Pattern, Redactor, find_spans, replace_spans};

/// A prefix of an encoded secret shorter than this is emitted, not held back, if a line break
/// follows it. Otherwise about half of all lines would lack their last character until the
/// next line arrives.
const MIN_HELD_PREFIX: usize = 4;

/// Redacts a stream. Bytes that may be the beginning of a secret are held back until the
/// following bytes show whether they are.
#[derive(Default)]
pub struct RedactStream {
    /// Bytes that are needed to recognise a secret that has begun.
    buffer: Vec<u8>,
    /// How many bytes at the start of `buffer` were emitted already.
    emitted: usize,
}

impl fmt::Debug for RedactStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedactStream")
    }
}

impl RedactStream {
    /// Adds bytes and returns those that can be emitted. If the pieces are whole UTF-8
    /// characters, so is the result.
    pub fn push(&mut self, redactor: &Redactor, bytes: &[u8]) -> Vec<u8> {
        let patterns = redactor.patterns();
        self.buffer.extend_from_slice(bytes);
        let spans = find_spans(&self.buffer, &patterns);
        let prefix = SecretPrefix::find(&self.buffer, &patterns);
        let mut emit_end = prefix.held_from.max(self.emitted);
        let mut keep_from = prefix.held_from.min(prefix.remembered_from);
        let is_split = |(start, end): &&(usize, usize)| *start < emit_end && emit_end < *end;
        if let Some((start, _)) = spans.iter().find(is_split) {
            keep_from = keep_from.min(*start);
            emit_end = self.emitted.max(*start);
        }
        let redacted = replace_spans(&self.buffer, self.emitted..emit_end, &spans);
        let keep_from = keep_from.min(emit_end);
        self.buffer.drain(..keep_from);
        self.emitted = emit_end - keep_from;
        redacted
    }

    /// Returns the bytes held back, at the end of the stream.
    pub fn finish(&mut self, redactor: &Redactor) -> Vec<u8> {
        let buffer = std::mem::take(&mut self.buffer);
        let emitted = std::mem::take(&mut self.emitted);
        let spans = find_spans(&buffer, &redactor.patterns());
        replace_spans(&buffer, emitted..buffer.len(), &spans)
    }
}

/// Where a secret may begin whose end has not arrived yet.
struct SecretPrefix {
    /// Bytes from here on are held back.
    held_from: usize,
    /// Bytes from here on are emitted, but kept to recognise a secret.
    remembered_from: usize,
}

impl SecretPrefix {
    fn find(text: &[u8], patterns: &[Pattern]) -> Self {
        let mut prefix = Self {
            held_from: text.len(),
            remembered_from: text.len(),
        };
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
                let length = partial_match(&normalized.bytes, &pattern.bytes);
                if length == 0 {
                    continue;
                }
                let start = normalized.offset(normalized.bytes.len() - length);
                let is_emitted = encoding != PatternEncoding::Text
                    && normalized.ends_with_gap
                    && length < MIN_HELD_PREFIX;
                if is_emitted {
                    prefix.remembered_from = prefix.remembered_from.min(start);
                } else {
                    prefix.held_from = prefix.held_from.min(start);
                }
            }
        }
        prefix
    }
}

/// Length of the longest proper prefix of the pattern that the text ends with.
fn partial_match(text: &[u8], pattern: &[u8]) -> usize {
    let max = pattern.len().saturating_sub(1).min(text.len());
    let fits = |size: &usize| pattern.starts_with(&text[text.len() - size..]);
    (1..=max).rev().find(fits).unwrap_or_default()
}
