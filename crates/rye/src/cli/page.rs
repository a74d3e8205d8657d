//! Human-readable output: lines and tables, with styles that the printer removes if colour is off.

use std::fmt::{self, Display, Write as _};

use anstyle::{AnsiColor, Style};

use super::table::Table;

pub(crate) use lillux::sanitize;

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

/// Sanitizes text and puts it on one line.
pub(crate) fn one_line(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

/// Text whose further lines, such as an excerpt of a file, keep their layout and are indented.
pub(crate) fn indented(text: &str) -> String {
    let lines = text.trim_end().lines();
    let lines = lines.map(|line| sanitize(line).replace('\t', "    "));
    lines.collect::<Vec<_>>().join("\n    ")
}
