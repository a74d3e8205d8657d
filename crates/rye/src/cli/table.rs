//! Tables with aligned columns. On a narrow terminal the last column is shortened, and the columns
//! that the table allows; on an even narrower one, each row takes several lines.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::page::{DIM, one_line};

/// Columns between two cells.
const GAP: usize = 2;
/// Minimum width of a column that may be shortened.
const MIN_WIDTH: usize = 12;

/// A cell: text on one line, and a style.
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

/// A header and rows with the same number of cells.
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// A column other than the last one that may be shortened.
    shortened: Option<usize>,
}

impl Table {
    pub(crate) fn new(header: impl Into<Vec<&'static str>>) -> Self {
        Self {
            header: header.into(),
            rows: Vec::new(),
            shortened: None,
        }
    }

    /// Allows a column to be shortened. The others are meant to be copied.
    pub(crate) fn shorten(mut self, column: usize) -> Self {
        self.shortened = Some(column);
        self
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
        let mut before: usize = columns.iter().take(last).map(|column| column + GAP).sum();
        let excess = width.map_or(0, |width| (before + MIN_WIDTH).saturating_sub(width));
        if let Some(column) = self.shortened.and_then(|it| columns.get_mut(it)) {
            let less = excess.min(column.saturating_sub(MIN_WIDTH));
            *column -= less;
            before -= less;
        }
        if let Some(width) = width.filter(|width| before + MIN_WIDTH > *width) {
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
                    let cell = shorten(&cell.text, columns[index]);
                    let pad = columns[index] - cell.width() + GAP;
                    let _ = write!(text, "{style}{cell}{style:#}{:pad$}", "");
                }
            }
        }
    }

    /// Writes each row on several lines.
    fn write_stacked(&self, text: &mut String, width: usize) {
        let last = self.header.len().saturating_sub(1);
        for row in &self.rows {
            let mut used = 0;
            for (index, cell) in row.iter().enumerate() {
                if cell.text.is_empty() {
                    continue;
                }
                let is_shortened = index == last || self.shortened == Some(index);
                let wide = cell.text.width();
                if used > 0 && used + GAP + wide <= width {
                    let _ = write!(text, "{:GAP$}", "");
                    used += GAP;
                } else if used > 0 {
                    let _ = write!(text, "\n{:INDENT$}", "");
                    used = INDENT;
                }
                let room = if is_shortened {
                    width.saturating_sub(used).max(MIN_WIDTH)
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

/// Indentation of the following lines of a row.
const INDENT: usize = 2;

/// Shortens text to a width, with `…` at the end.
fn shorten(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < room
    };
    let prefix: String = text.chars().take_while(fits).collect();
    prefix.trim_end().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(width: Option<usize>) -> String {
        let mut table = Table::new(["NAME", "ABOUT"]);
        table.row(["a".into(), "short".into()]);
        table.row(["日本".into(), "a text that is long\nin two lines".into()]);
        let mut text = String::new();
        table.write(&mut text, width);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn columns_are_aligned_by_display_width() {
        let expected = "NAME  ABOUT\na     short\n日本  a text that is long in two lines\n";
        assert_eq!(render(None), expected);
    }

    #[test]
    fn last_column_is_shortened_on_a_narrow_terminal() {
        let expected = "NAME  ABOUT\na     short\n日本  a text that…\n";
        assert_eq!(render(Some(18)), expected);
    }

    #[test]
    fn other_column_is_shortened_if_the_table_allows_it() {
        let mut table = Table::new(["ID", "MODEL", "TITLE"]).shorten(1);
        table.row([
            "a".into(),
            "provider/long-model-name".into(),
            "fix the leaks".into(),
        ]);
        let mut text = String::new();
        table.write(&mut text, Some(31));
        let text = anstream::adapter::strip_str(&text).to_string();
        let expected = "ID  MODEL          TITLE\na   provider/lon…  fix the lea…\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn rows_take_several_lines_if_columns_do_not_fit() {
        let expected = "a  short\n日本\n  a text that…\n";
        assert_eq!(render(Some(15)), expected);
        assert_eq!(render(Some(3)), "a\n  short\n日本\n  a text that…\n");
    }
}
