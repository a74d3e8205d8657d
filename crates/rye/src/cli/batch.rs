//! Shows the outcome of one operation on many items: a line per item and totals.

use rye_host::Batch;
use serde_json::Value;

use super::failure::{self, Failure};
use super::page::{BOLD, DIM, GOOD, Page, paint};
use super::printer::Report;
use super::table::{Cell, Table};

/// Longer tables are left out; the totals remain.
const MAX_ROWS: usize = 40;

impl Report for Batch {
    fn json(&self) -> Value {
        self.json()
    }

    fn show(&self, page: &mut Page) {
        let succeeded: Vec<_> = self.rows.iter().filter(|r| r.failure.is_none()).collect();
        if !succeeded.is_empty() && succeeded.len() <= MAX_ROWS {
            let mut table = Table::new(["STATE", "ITEM", self.detail_heading]);
            for row in succeeded {
                table.row([
                    Cell::styled(GOOD, row.state),
                    row.item.as_str().into(),
                    Cell::styled(DIM, &row.detail),
                ]);
            }
            page.table(&table);
        }
        if self.rows.len() == 1 {
            return;
        }
        for failure in self.failures() {
            page.text(&failure::render(failure));
        }
        let counts = self.counts().filter(|(_, count)| *count > 0);
        let counts: Vec<_> = counts
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        match counts.as_slice() {
            [] => page.line("nothing to do"),
            counts => page.line(paint(BOLD, counts.join(", "))),
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.failure()
    }
}
