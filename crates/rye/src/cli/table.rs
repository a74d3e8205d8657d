//! Aligned columns, without drawings. The last one gives way where the terminal is narrow,
//! and where it is narrower still, a row takes several lines.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::page::{DIM, one_line};

/// Between two columns.
const GAP: usize = 2;
/// Fewer characters than this say nothing.
const NARROWEST: usize = 12;

/// One cell: its text on one line, and a style.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::styled(Style::new(), text)
    }

    pub(crate) fn styled(style: Style, text: impl AsRef<str>) -> Self {
        let text = one_line(text.as_ref());
        Self { text, style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// A header and rows of as many cells.
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(header: impl Into<Vec<&'static str>>) -> Self {
        Self {
            header: header.into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    pub(super) fn write(&self, text: &mut String, width: Option<usize>) {
        let mut columns: Vec<_> = self.header.iter().map(|name| name.width()).collect();
        for row in &self.rows {
            for (column, cell) in columns.iter_mut().zip(row) {
                *column = (*column).max(cell.text.width());
            }
        }
        let last = columns.len().saturating_sub(1);
        let before: usize = columns.iter().take(last).map(|column| column + GAP).sum();
        if let Some(width) = width.filter(|width| before + NARROWEST > *width) {
            return self.write_stacked(text, width);
        }
        let room = width.map_or(usize::MAX, |width| width - before);
        let header: Vec<_> = self.header.iter().map(|n| Cell::styled(DIM, n)).collect();
        for row in std::iter::once(&header).chain(&self.rows) {
            for (index, cell) in row.iter().enumerate() {
                let style = cell.style;
                if index == last && cell.text.is_empty() {
                    text.truncate(text.trim_end_matches(' ').len());
                    text.push('\n');
                } else if index == last {
                    let _ = writeln!(text, "{style}{}{style:#}", shorten(&cell.text, room));
                } else {
                    let pad = columns[index] - cell.text.width() + GAP;
                    let _ = write!(text, "{style}{}{style:#}{:pad$}", cell.text, "");
                }
            }
        }
    }

    /// Where the columns do not fit side by side: each row on as many lines as it
    /// takes. Only the last cell is shortened: the others are there to be copied.
    fn write_stacked(&self, text: &mut String, width: usize) {
        let last = self.header.len().saturating_sub(1);
        for row in &self.rows {
            let mut used = 0;
            for (index, cell) in row.iter().enumerate() {
                if cell.text.is_empty() {
                    continue;
                }
                let wide = cell.text.width();
                if used > 0 && used + GAP + wide <= width {
                    let _ = write!(text, "{:GAP$}", "");
                    used += GAP;
                } else if used > 0 {
                    let _ = write!(text, "\n{:INDENT$}", "");
                    used = INDENT;
                }
                let room = if index == last {
                    width.saturating_sub(used).max(NARROWEST)
                } else {
                    usize::MAX
                };
                let style = cell.style;
                let _ = write!(text, "{style}{}{style:#}", shorten(&cell.text, room));
                used += wide;
            }
            text.push('\n');
        }
    }
}

/// Where a cell that does not fit on its row's line goes on.
const INDENT: usize = 2;

/// As much of a text as there is room for, with `…` where something is missing.
fn shorten(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < room
    };
    let kept: String = text.chars().take_while(fits).collect();
    kept.trim_end().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(width: Option<usize>) -> String {
        let mut table = Table::new(["NAME", "ABOUT"]);
        table.row(["a".into(), "short".into()]);
        table.row(["日本".into(), "a text that is long\nin two lines".into()]);
        let mut text = String::new();
        table.write(&mut text, width);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let expected = "NAME  ABOUT\na     short\n日本  a text that is long in two lines\n";
        assert_eq!(written(None), expected);
    }

    #[test]
    fn the_last_column_gives_way_where_the_terminal_is_narrow() {
        let expected = "NAME  ABOUT\na     short\n日本  a text that…\n";
        assert_eq!(written(Some(18)), expected);
    }

    #[test]
    fn rows_take_several_lines_where_the_columns_do_not_fit() {
        let expected = "a  short\n日本\n  a text that…\n";
        assert_eq!(written(Some(15)), expected);
        assert_eq!(written(Some(3)), "a\n  short\n日本\n  a text that…\n");
    }
}
