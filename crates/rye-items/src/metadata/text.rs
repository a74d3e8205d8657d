//! Text utilities for all parsers: UTF-8 validation and lines.

use super::error::Problem;

/// Validates that bytes are UTF-8 without NUL.
pub(super) fn validate(bytes: &[u8]) -> Result<&str, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let byte = bytes.get(at).copied().unwrap_or_default();
        Problem::new(
            at,
            format!("the file is not UTF-8: invalid byte 0x{byte:02x}"),
        )
        .hint("save the file as UTF-8")
    })?;
    match text.find('\0') {
        Some(at) => Err(Problem::new(
            at,
            "the file contains a NUL byte, so it is not text",
        )),
        None => Ok(text),
    }
}

/// A line without its line break, and its byte offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'t> {
    pub(super) at: usize,
    pub(super) text: &'t str,
}

impl Line<'_> {
    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The byte offset after its last character.
    pub(super) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// The lines of a text from a byte offset. Skips a byte order mark.
pub(super) fn lines(text: &str, from: usize) -> impl Iterator<Item = Line<'_>> {
    let rest = text.get(from..).unwrap_or_default();
    let mut at = from;
    rest.split_inclusive('\n').map(move |whole| {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let start = at;
        at += whole.len();
        match line.strip_prefix('\u{feff}') {
            Some(line) if start == 0 => Line { at: 3, text: line },
            _ => Line {
                at: start,
                text: line,
            },
        }
    })
}

/// Whether a line is the signature line.
pub(super) fn is_signature(line: &str) -> bool {
    line.contains("rye:signed:")
}

/// The first paragraph of a text, on one line.
pub(super) fn summary(prose: &str) -> Option<String> {
    let lines = prose.lines().skip_while(|line| line.trim().is_empty());
    let paragraph: Vec<_> = lines.take_while(|line| !line.trim().is_empty()).collect();
    let summary = collapse_whitespace(&paragraph.join(" "));
    (!summary.is_empty()).then_some(summary)
}

/// Replaces each run of white space by one space.
pub(super) fn collapse_whitespace(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}
