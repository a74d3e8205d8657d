//! Renders Markdown tables.

use pulldown_cmark::Alignment;

use crate::text::{BOLD, DIM, Line, PLAIN};

/// Narrowest width to which a column is shrunk.
const MIN_COLUMN_WIDTH: usize = 4;
const SEPARATOR: &str = " │ ";

/// The cells of a table.
#[derive(Default)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    /// The complete rows; the first one is the heading.
    pub(super) rows: Vec<Vec<Line>>,
    /// The row that is being read.
    pub(super) row: Vec<Line>,
}

impl Table {
    pub(super) fn lines(self, width: usize) -> Vec<Line> {
        let widths = self.column_widths(width);
        if widths.iter().sum::<usize>() + 3 * widths.len().saturating_sub(1) > width {
            return self.records(width);
        }
        let mut lines = Vec::new();
        for (row, number) in self.rows.into_iter().zip(0..) {
            let head = number == 0;
            lines.extend(row_lines(row, &widths, &self.alignments, head));
            if head {
                let rule: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Line::new(&rule.join("─┼─"), DIM));
            }
        }
        lines
    }

    /// For columns that do not fit side by side: one line per cell, with the column's heading.
    fn records(self, width: usize) -> Vec<Line> {
        let mut rows = self.rows.into_iter();
        let head = rows.next().unwrap_or_default();
        let mut lines = Vec::new();
        for (row, number) in rows.zip(0..) {
            if number > 0 {
                lines.push(Line::new("─", DIM));
            }
            for (cell, column) in row.into_iter().zip(0..) {
                let name = head.get(column).map(Line::text).unwrap_or_default();
                let mut line = Line::new(&format!("{name}: "), BOLD);
                line.extend(cell);
                lines.extend(line.wrap(width, &Line::plain("  ")));
            }
        }
        lines
    }

    /// Column widths: those of the cells, with the widest columns shrunk to fit.
    fn column_widths(&self, width: usize) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths = vec![1; columns];
        for row in &self.rows {
            for (cell, column) in row.iter().zip(&mut widths) {
                *column = cell.width().max(*column);
            }
        }
        let room = width.saturating_sub(3 * columns.saturating_sub(1));
        while widths.iter().sum::<usize>() > room {
            match widths.iter_mut().max() {
                Some(widest) if *widest > MIN_COLUMN_WIDTH => *widest -= 1,
                _ => break,
            }
        }
        widths
    }
}

fn row_lines(row: Vec<Line>, widths: &[usize], alignments: &[Alignment], head: bool) -> Vec<Line> {
    let cells = row.into_iter().zip(widths);
    let cells: Vec<_> = cells
        .map(|(cell, width)| cell.wrap(*width, &Line::default()))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |number: usize| {
        let mut line = Line::default();
        for (width, column) in widths.iter().zip(0..) {
            if column > 0 {
                line.push(SEPARATOR, DIM);
            }
            let cell = cells.get(column).and_then(|cell| cell.get(number)).cloned();
            let cell = cell.unwrap_or_default();
            let room = width.saturating_sub(cell.width());
            let before = match alignments.get(column) {
                Some(Alignment::Right) => room,
                Some(Alignment::Center) => room / 2,
                _ => 0,
            };
            line.push(&" ".repeat(before), PLAIN);
            if head {
                line.push(&cell.text(), BOLD);
            } else {
                line.extend(cell);
            }
            line.push(&" ".repeat(room - before), PLAIN);
        }
        line
    };
    (0..height).map(line).collect()
}
