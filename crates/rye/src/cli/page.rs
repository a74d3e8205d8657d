//! What people read: lines and tables, with styles that the printer may take out again.

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

/// A text to be printed, and how wide it may be.
pub(crate) struct Page {
    pub(super) text: String,
    width: Option<usize>,
}

impl Page {
    /// A page of this many columns; without a number, of any.
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

    /// Lines that are ready, with their newlines.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn table(&mut self, table: &Table) {
        table.write(&mut self.text, self.width);
    }
}

/// A text in a style.
pub(crate) fn paint<T: Display>(style: Style, text: T) -> impl Display {
    struct Painted<T>(Style, T);
    impl<T: Display> Display for Painted<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}{}{:#}", self.0, self.1, self.0)
        }
    }
    Painted(style, text)
}

/// A text from elsewhere that cannot steer the terminal: what is neither newline nor
/// tab and would not be seen is spelled out.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_direction(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// Characters that turn the order of the others round.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(plain("two\n\tlines, ä"), "two\n\tlines, ä");
        assert_eq!(plain("a\x1b[2Jb\r\u{202e}"), r"a\u{1b}[2Jb\r\u{202e}");
    }
}
