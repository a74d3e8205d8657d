//! A text file with its byte order mark and line endings.

use std::borrow::Cow;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Line endings of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnding {
    /// `\n`, or no line break at all.
    Lf,
    /// `\r\n`; converted to `\n` while editing.
    Crlf,
    /// Both; preserved as they are.
    Mixed,
}

/// Text that can be written back with its original byte order mark and line endings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) text: String,
    has_bom: bool,
    ending: LineEnding,
}

impl Document {
    /// Parses a file; `None` if it is not UTF-8, because writing it back would change other bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let without_bom = bytes.strip_prefix(BOM);
        let text = std::str::from_utf8(without_bom.unwrap_or(bytes)).ok()?;
        let newlines = text.matches('\n').count();
        let ending = match text.matches("\r\n").count() {
            0 => LineEnding::Lf,
            crlf if crlf == newlines => LineEnding::Crlf,
            _ => LineEnding::Mixed,
        };
        let text = match ending {
            LineEnding::Crlf => text.replace("\r\n", "\n"),
            LineEnding::Lf | LineEnding::Mixed => text.to_owned(),
        };
        Some(Self {
            text,
            has_bom: without_bom.is_some(),
            ending,
        })
    }

    /// The same file with another text.
    pub(crate) fn with_text(&self, text: String) -> Self {
        Self { text, ..*self }
    }

    /// The bytes to write to the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let text = match self.ending {
            LineEnding::Crlf => Cow::from(self.text.replace('\n', "\r\n")),
            LineEnding::Lf | LineEnding::Mixed => Cow::from(&self.text),
        };
        let start = if self.has_bom { BOM } else { &[] };
        [start, text.as_bytes()].concat()
    }

    /// Converts the line endings of a search or replacement text to those used while editing.
    pub(super) fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.ending {
            LineEnding::Lf | LineEnding::Crlf if text.contains("\r\n") => {
                text.replace("\r\n", "\n").into()
            }
            _ => text.into(),
        }
    }

    pub(super) fn is_mixed(&self) -> bool {
        self.ending == LineEnding::Mixed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parsing_and_writing_preserves_the_bytes(text in "\u{feff}?[a\r\n]{0,20}") {
            let document = Document::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(document.bytes(), text.as_bytes());
        }
    }

    #[test]
    fn invalid_utf8_is_not_parsed() {
        assert_eq!(Document::parse(b"gr\xfc\xdfe"), None);
    }
}
