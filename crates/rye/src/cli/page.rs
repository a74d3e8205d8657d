//! Human-readable output: lines and tables, with styles that the printer removes if colour is off.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};

use anstyle::{AnsiColor, Style};

use super::table::Table;

pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const HELP: Style = AnsiColor::Cyan.on_default().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();

/// Text to print, with the width of the terminal.
pub(crate) struct Page {
    pub(super) text: String,
    width: Option<usize>,
}

impl Page {
    /// An empty page for a terminal of this width; `None` means unlimited.
    pub(crate) fn new(width: Option<usize>) -> Self {
        let text = String::new();
        Self { text, width }
    }

    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    /// Appends text that ends in a newline.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn table(&mut self, table: &Table) {
        table.write(&mut self.text, self.width);
    }
}

/// Wraps text in a style.
pub(crate) fn paint<T: Display>(style: Style, text: T) -> impl Display {
    struct Painted<T>(Style, T);
    impl<T: Display> Display for Painted<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}{}{:#}", self.0, self.1, self.0)
        }
    }
    Painted(style, text)
}

/// Escapes control characters and bidirectional overrides in untrusted text, except newlines and
/// tabs, so that it cannot manipulate the terminal.
pub(crate) fn sanitize(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_bidi_control(c);
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for c in text.chars() {
        if is_unsafe(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Sanitizes text and puts it on one line.
pub(crate) fn one_line(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

/// Whether a character changes the direction of the text around it.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(sanitize("two\n\tlines, ä"), "two\n\tlines, ä");
        assert_eq!(sanitize("a\x1b[2Jb\r\u{202e}"), r"a\u{1b}[2Jb\r\u{202e}");
    }
}
