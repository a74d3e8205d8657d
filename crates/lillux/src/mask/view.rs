//! Texts as the forms of a secret are looked for in them: without what writers put between the
//! letters of an encoding, and without a difference between cases where there is none.

use std::borrow::Cow;

/// How a form is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The secret as text, in any case.
    Text,
    /// Base64, with line breaks and indentation between its letters.
    Base64,
    /// Hexadecimal in any case, with separators between its digits.
    Hex,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Text, Kind::Base64, Kind::Hex];

/// Longer gaps are no layout of an encoded text, and a stream would hold them back.
const LONGEST_GAP: usize = 64;

/// A text as one kind of form is looked for in it.
pub(super) struct View<'t> {
    pub(super) bytes: Cow<'t, [u8]>,
    /// Where each byte stands in the text; none if each stands where it is.
    places: Option<Vec<usize>>,
    /// Whether the text ends with a gap.
    pub(super) ends_with_gap: bool,
}

impl<'t> View<'t> {
    pub(super) fn new(kind: Kind, text: &'t [u8]) -> Self {
        let gap = |at: usize| match kind {
            Kind::Text => 0,
            Kind::Base64 => base64_gap(&text[at..]),
            Kind::Hex => hex_gap(&text[at..]),
        };
        let mut view = match kind {
            Kind::Text => Self::whole(text),
            _ => Self::without_gaps(text, gap),
        };
        let folds = matches!(kind, Kind::Text | Kind::Hex);
        if folds && view.bytes.iter().any(u8::is_ascii_uppercase) {
            view.bytes.to_mut().make_ascii_lowercase();
        }
        view
    }

    fn whole(text: &'t [u8]) -> Self {
        Self {
            bytes: Cow::Borrowed(text),
            places: None,
            ends_with_gap: false,
        }
    }

    fn without_gaps(text: &'t [u8], gap: impl Fn(usize) -> usize) -> Self {
        let Some(first) = (0..text.len()).find(|at| gap(*at) > 0) else {
            return Self::whole(text);
        };
        let mut bytes = text[..first].to_vec();
        let mut places: Vec<usize> = (0..first).collect();
        let mut at = first;
        while at < text.len() {
            let start = at;
            while at < text.len() && gap(at) > 0 {
                at += gap(at);
            }
            let end = at.min(text.len());
            if end - start > LONGEST_GAP {
                // It separates, and no form contains such a byte.
                bytes.push(b'\n');
                places.push(start);
            }
            if let Some(byte) = text.get(at) {
                bytes.push(*byte);
                places.push(at);
                at += 1;
            } else {
                return Self {
                    bytes: Cow::Owned(bytes),
                    places: Some(places),
                    ends_with_gap: end > start,
                };
            }
        }
        Self {
            bytes: Cow::Owned(bytes),
            places: Some(places),
            ends_with_gap: false,
        }
    }

    /// Where a byte of the view stands in the text.
    pub(super) fn place(&self, at: usize) -> usize {
        match &self.places {
            None => at,
            Some(places) => places.get(at).copied().unwrap_or_default(),
        }
    }
}

/// How many bytes at the beginning of a text are an escaped line break or tab, in JSON or a
/// string of a program, however often it was escaped; a text that ends in one counts.
fn escaped_break(text: &[u8]) -> usize {
    let escapes = text.iter().take_while(|byte| **byte == b'\\').count();
    match text.get(escapes) {
        Some(b'n' | b'r' | b't') | None if escapes > 0 => escapes + 1,
        _ => 0,
    }
}

fn base64_gap(text: &[u8]) -> usize {
    match text {
        // A slash may be escaped in JSON.
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
