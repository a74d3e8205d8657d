//! Styled text in lines of a given width. All text from models and tools passes through here,
//! which removes control sequences.

use std::fmt::Write as _;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use lillux::strip_control;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr as _};

use crate::theme::Theme;

/// Replacement for a tab.
const TAB: &str = "    ";

/// Indent of a wrapped line that must not look like a line of its own.
pub(crate) const CONTINUATION: &str = "  ┊ ";

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const DIM: Style = PLAIN.dimmed();
pub(crate) const BOLD: Style = PLAIN.bold();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const BLUE: Style = AnsiColor::Blue.on_default();
pub(crate) const MAGENTA: Style = AnsiColor::Magenta.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();

/// Text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// A line of styled text without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) spans: Vec<Span>,
}

impl Line {
    pub(crate) fn new(text: &str, style: Style) -> Self {
        Self::default().with(text, style)
    }

    pub(crate) fn plain(text: &str) -> Self {
        Self::new(text, PLAIN)
    }

    pub(crate) fn push(&mut self, text: &str, style: Style) {
        let text = strip_control(text).replace('\t', TAB).replace('\n', "");
        match self.spans.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style => last.text += &text,
            _ => self.spans.push(Span { text, style }),
        }
    }

    pub(crate) fn with(mut self, text: &str, style: Style) -> Self {
        self.push(text, style);
        self
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for span in other.spans {
            self.push(&span.text, span.style);
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.spans.iter().map(|span| cells(&span.text)).sum()
    }

    pub(crate) fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Wraps the line to `width`, between words if possible; all lines but the first start
    /// with `indent`.
    pub(crate) fn wrap(self, width: usize, indent: &Line) -> Vec<Line> {
        let width = width.max(1);
        if self.width() <= width {
            return vec![self];
        }
        let no_indent = Self::default();
        let has_room = indent.width() + 1 < width;
        let indent = if has_room { indent } else { &no_indent };
        let text = self.text();
        let (mut lines, mut start) = (Vec::new(), 0);
        while start < text.len() {
            let first = lines.is_empty();
            let mut line = if first {
                Self::default()
            } else {
                indent.clone()
            };
            let rest = &text[start..];
            let part = &rest[..break_point(rest, width - line.width())];
            line.extend(self.slice(start..start + part.trim_end_matches(' ').len()));
            lines.push(line);
            let after = &rest[part.len()..];
            start = text.len() - after.trim_start_matches(' ').len();
        }
        lines
    }

    /// Cuts the line at `width`; `…` marks the cut.
    pub(crate) fn truncate(self, width: usize) -> Line {
        if self.width() <= width {
            return self;
        }
        let end = prefix_len(&self.text(), width.saturating_sub(1));
        let mark = if width > 0 { "…" } else { "" };
        self.slice(0..end).with(mark, DIM)
    }

    /// The part of the line in a range of bytes.
    fn slice(&self, range: Range<usize>) -> Line {
        let (mut line, mut start) = (Self::default(), 0);
        for Span { text, style } in &self.spans {
            let within = |at: usize| at.saturating_sub(start).min(text.len());
            line.push(&text[within(range.start)..within(range.end)], *style);
            start += text.len();
        }
        line
    }

    /// The line with escape sequences for its styles.
    pub(crate) fn ansi(&self, theme: Theme) -> String {
        let mut out = String::new();
        for Span { text, style } in &self.spans {
            let style = theme.apply(*style);
            let _ = write!(out, "{style}{text}{style:#}");
        }
        out
    }
}

/// The number of cells that a text takes at most. Terminals differ in sequences of emoji: some
/// draw them as one, some each on its own. A line that is too short is harmless; one that the
/// terminal wraps is not.
pub(crate) fn cells(text: &str) -> usize {
    let single: usize = text.chars().filter_map(UnicodeWidthChar::width).sum();
    single.max(text.width())
}

/// Length in bytes of the longest beginning that fits into `width`.
pub(crate) fn prefix_len(text: &str, width: usize) -> usize {
    let mut ends = text.char_indices().map(|(at, c)| (at, at + c.len_utf8()));
    let too_wide = ends.find(|(_, end)| cells(&text[..*end]) > width);
    too_wide.map_or(text.len(), |(at, _)| at)
}

/// Where to break a text so that the part before fits into `width`: between words, or in a
/// word that is too long. At least one character is before it.
fn break_point(text: &str, width: usize) -> usize {
    let end = prefix_len(text, width);
    if end == text.len() || text[end..].starts_with(' ') {
        return end;
    }
    let first_word = text.len() - text.trim_start_matches(' ').len();
    let space = text[..end].rfind(' ').filter(|at| *at > first_word);
    let first_letter = text.chars().next().map_or(0, char::len_utf8);
    space.unwrap_or(end).max(first_letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_wrap_between_words() {
        let table: [(&str, usize, &[&str]); 6] = [
            ("one two three", 7, &["one two", "three"]),
            ("one two three", 80, &["one two three"]),
            ("abcdefghij", 4, &["abcd", "efgh", "ij"]),
            ("漢字漢字", 5, &["漢字", "漢字"]),
            ("a  b", 3, &["a", "b"]),
            ("", 3, &[""]),
        ];
        for (given, width, expected) in table {
            let lines = Line::plain(given).wrap(width, &Line::default());
            let lines: Vec<_> = lines
                .iter()
                .map(|line| line.text().trim_end().to_owned())
                .collect();
            assert_eq!(lines, expected, "{given}");
        }
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_keep_all_characters(text in "[a-z漢 é]{0,80}", width in 2..30_usize) {
            let lines = Line::plain(&text).wrap(width, &Line::plain("> "));
            let letters = |text: &str| text.replace(' ', "");
            let mut joined = String::new();
            for (line, number) in lines.iter().zip(0..) {
                prop_assert!(line.width() <= width, "{:?}", line);
                let text = line.text();
                let text = if number == 0 { text.as_str() } else { text.strip_prefix("> ").unwrap_or(&text) };
                joined += text;
            }
            prop_assert_eq!(letters(&joined), letters(&text));
        }

        #[test]
        fn truncated_line_fits(text in "[a-z漢 ]{0,40}", width in 0..20_usize) {
            prop_assert!(Line::plain(&text).truncate(width).width() <= width);
        }
    }
}
