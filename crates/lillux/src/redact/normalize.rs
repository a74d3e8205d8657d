//! Normalises a text for the search: drops line breaks and separators inside encoded text, and
//! folds ASCII case where the encoding ignores it.

use std::borrow::Cow;

/// The encoding of a pattern, which decides how the text is normalised before the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternEncoding {
    /// The secret as text, in any case.
    Text,
    /// Base64, possibly with line breaks and indentation.
    Base64,
    /// Hexadecimal in any case, possibly with separators between the digits.
    Hex,
}

impl PatternEncoding {
    pub(super) const ALL: [Self; 3] = [Self::Text, Self::Base64, Self::Hex];
}

/// Longer gaps are not the layout of an encoded text. The limit also bounds what a stream
/// holds back.
const MAX_GAP: usize = 64;

/// A text without the gaps that one encoding allows.
pub(super) struct NormalizedText<'t> {
    pub(super) bytes: Cow<'t, [u8]>,
    /// Offset of each byte in the original text; `None` if nothing was dropped.
    offsets: Option<Vec<usize>>,
    pub(super) ends_with_gap: bool,
}

impl<'t> NormalizedText<'t> {
    pub(super) fn new(encoding: PatternEncoding, text: &'t [u8]) -> Self {
        let gap = |at: usize| match encoding {
            PatternEncoding::Text => 0,
            PatternEncoding::Base64 => base64_gap(&text[at..]),
            PatternEncoding::Hex => hex_gap(&text[at..]),
        };
        let mut normalized = match encoding {
            PatternEncoding::Text => Self::unchanged(text),
            _ => Self::without_gaps(text, gap),
        };
        let ignores_case = matches!(encoding, PatternEncoding::Text | PatternEncoding::Hex);
        if ignores_case && normalized.bytes.iter().any(u8::is_ascii_uppercase) {
            normalized.bytes.to_mut().make_ascii_lowercase();
        }
        normalized
    }

    fn unchanged(text: &'t [u8]) -> Self {
        Self {
            bytes: Cow::Borrowed(text),
            offsets: None,
            ends_with_gap: false,
        }
    }

    fn without_gaps(text: &'t [u8], gap: impl Fn(usize) -> usize) -> Self {
        let Some(first) = (0..text.len()).find(|at| gap(*at) > 0) else {
            return Self::unchanged(text);
        };
        let mut bytes = text[..first].to_vec();
        let mut offsets: Vec<usize> = (0..first).collect();
        let mut at = first;
        while at < text.len() {
            let start = at;
            while at < text.len() && gap(at) > 0 {
                at += gap(at);
            }
            let end = at.min(text.len());
            if end - start > MAX_GAP {
                // A separator: no pattern contains this byte.
                bytes.push(b'\n');
                offsets.push(start);
            }
            if let Some(byte) = text.get(at) {
                bytes.push(*byte);
                offsets.push(at);
                at += 1;
            } else {
                return Self {
                    bytes: Cow::Owned(bytes),
                    offsets: Some(offsets),
                    ends_with_gap: end > start,
                };
            }
        }
        Self {
            bytes: Cow::Owned(bytes),
            offsets: Some(offsets),
            ends_with_gap: false,
        }
    }

    /// The offset in the original text of the byte at `index`.
    pub(super) fn offset(&self, index: usize) -> usize {
        match &self.offsets {
            None => index,
            Some(offsets) => offsets.get(index).copied().unwrap_or_default(),
        }
    }
}

/// Length of an escaped line break or tab at the start of a text, such as `\n` in JSON, also
/// if it was escaped several times. A text that ends after the backslashes counts too.
fn escaped_break(text: &[u8]) -> usize {
    let escapes = text.iter().take_while(|byte| **byte == b'\\').count();
    match text.get(escapes) {
        Some(b'n' | b'r' | b't') | None if escapes > 0 => escapes + 1,
        _ => 0,
    }
}

fn base64_gap(text: &[u8]) -> usize {
    match text {
        // JSON allows `\/` for a slash.
        [b' ' | b'\t' | b'\r' | b'\n', ..] | [b'\\', b'/', ..] => 1,
        [b'\\', ..] => escaped_break(text),
        _ => 0,
    }
}

fn hex_gap(text: &[u8]) -> usize {
    match text {
        [b' ' | b'\t' | b'\r' | b'\n' | b':' | b'-' | b',' | b'%', ..] => 1,
        [b'0' | b'\\', b'x' | b'X', ..] => 2,
        [b'\\', ..] => escaped_break(text),
        _ => 0,
    }
}
