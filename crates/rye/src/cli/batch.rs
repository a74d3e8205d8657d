//! Report of one operation on many items: a line per item and totals.

use serde_json::{Map, Value, json};

use super::failure::{self, Exit, Failure};
use super::page::{BOLD, DIM, GOOD, Page, paint};
use super::printer::Report;
use super::table::{Cell, Table};

/// Longer tables are left out; the totals remain.
const MAX_ROWS: usize = 40;

/// The outcome for one item.
pub(crate) struct Row {
    /// Outcome in one word: `signed`, `verified`, `failed`.
    pub(crate) state: &'static str,
    pub(crate) item: String,
    /// Text of the last column, for successful items.
    pub(crate) detail: String,
    /// Additional JSON fields.
    pub(crate) fields: Map<String, Value>,
    pub(crate) failure: Option<Failure>,
}

impl Row {
    /// The row of an item that could not be processed.
    pub(crate) fn failed(item: impl Into<String>, failure: Failure) -> Self {
        Self {
            state: "failed",
            item: item.into(),
            detail: String::new(),
            fields: Map::new(),
            failure: Some(failure),
        }
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("item".into(), self.item.as_str().into());
        object.insert("state".into(), self.state.into());
        object.extend(self.fields.clone());
        if let Some(failure) = &self.failure {
            object.insert("error".into(), failure.json());
        }
        Value::Object(object)
    }
}

/// The outcome for all items.
pub(crate) struct Batch {
    /// States that count as success, in the order of the totals.
    pub(crate) success_states: &'static [&'static str],
    /// What did not happen to failed items: `were not signed`.
    pub(crate) not_done: &'static str,
    /// Heading of the last column.
    pub(crate) detail_heading: &'static str,
    pub(crate) rows: Vec<Row>,
}

impl Batch {
    fn count(&self, state: &str) -> usize {
        self.rows.iter().filter(|row| row.state == state).count()
    }

    fn failed(&self) -> impl Iterator<Item = &Failure> {
        self.rows.iter().filter_map(|row| row.failure.as_ref())
    }
}

impl Report for Batch {
    fn json(&self) -> Value {
        let states = self.success_states.iter().chain(&["failed"]);
        let counts: Map<_, _> = states
            .map(|state| ((*state).to_owned(), self.count(state).into()))
            .collect();
        let items: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({ "counts": counts, "items": items })
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
        for failure in self.failed() {
            page.text(&failure::render(failure));
        }
        let states = self.success_states.iter().chain(&["failed"]);
        let counts: Vec<_> = states
            .map(|state| (self.count(state), *state))
            .filter(|(count, _)| *count > 0)
            .map(|(count, state)| format!("{count} {state}"))
            .collect();
        match counts.as_slice() {
            [] => page.line("nothing to do"),
            counts => page.line(paint(BOLD, counts.join(", "))),
        }
    }

    fn failure(&self) -> Option<Failure> {
        let worst = self.failed().max_by_key(|failure| severity(failure.kind))?;
        if self.rows.len() == 1 {
            return Some(worst.clone());
        }
        let failed = self.failed().count();
        let message = format!("{failed} of {} {}", self.rows.len(), self.not_done);
        let code = match worst.kind {
            Exit::Integrity => "integrity",
            _ => worst.code,
        };
        Some(Failure::new(worst.kind, code, message))
    }
}

/// Rank of a failure for the choice of the exit code: integrity failures come first.
fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Integrity => u8::MAX,
        other => other as u8,
    }
}
