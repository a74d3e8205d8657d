//! A text as it is edited, and as it lies in its file.

use std::borrow::Cow;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// How the lines of a file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Nothing ends, or each line with `\n`.
    Lf,
    /// Each line with `\r\n`; while it is edited, with `\n`.
    Crlf,
    /// Some so, some so; left as they are.
    Mixed,
}

/// A text that remembers how its file began and how its lines ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) text: String,
    has_bom: bool,
    ending: Ending,
}

impl Document {
    /// None of what is not UTF-8: to write it again would change more than was asked for.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(BOM);
        let text = std::str::from_utf8(rest.unwrap_or(bytes)).ok()?;
        let ends = text.matches('\n').count();
        let ending = match text.matches("\r\n").count() {
            0 => Ending::Lf,
            crlf if crlf == ends => Ending::Crlf,
            _ => Ending::Mixed,
        };
        let text = match ending {
            Ending::Crlf => text.replace("\r\n", "\n"),
            Ending::Lf | Ending::Mixed => text.to_owned(),
        };
        Some(Self {
            text,
            has_bom: rest.is_some(),
            ending,
        })
    }

    /// With another text.
    pub(super) fn with(&self, text: String) -> Self {
        Self { text, ..*self }
    }

    /// What lies in the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let text = match self.ending {
            Ending::Crlf => Cow::from(self.text.replace('\n', "\r\n")),
            Ending::Lf | Ending::Mixed => Cow::from(&self.text),
        };
        let start = if self.has_bom { BOM } else { &[] };
        [start, text.as_bytes()].concat()
    }

    /// Something that is to be found here, or to be put here, with the line ends that are
    /// used here.
    pub(super) fn fit<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.ending {
            Ending::Lf | Ending::Crlf if text.contains("\r\n") => text.replace("\r\n", "\n").into(),
            _ => text.into(),
        }
    }

    pub(super) fn is_mixed(&self) -> bool {
        self.ending == Ending::Mixed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_not_edited_stays_as_it_was(text in "\u{feff}?[a\r\n]{0,20}") {
            let document = Document::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(document.bytes(), text.as_bytes());
        }
    }

    #[test]
    fn what_is_not_utf8_is_not_edited() {
        assert_eq!(Document::parse(b"gr\xfc\xdfe"), None);
    }
}
