//! One thing done to many items: a line for each, and a sum.

use serde_json::{Map, Value, json};

use super::failure::{Exit, Failure};
use super::page::{BOLD, DIM, GOOD, Page, paint};
use super::printer::Report;
use super::table::{Cell, Table};

/// More lines than this nobody reads; the sum says it.
const LINES: usize = 40;

/// What became of one item.
pub(crate) struct Row {
    /// One word: `signed`, `verified`, `failed`.
    pub(crate) state: &'static str,
    pub(crate) item: String,
    /// What else people want to know of a good one.
    pub(crate) about: String,
    /// What else scripts want to know.
    pub(crate) fields: Map<String, Value>,
    pub(crate) failure: Option<Failure>,
}

impl Row {
    /// One that was named and cannot be had.
    pub(crate) fn failed(item: impl Into<String>, failure: Failure) -> Self {
        Self {
            state: "failed",
            item: item.into(),
            about: String::new(),
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

/// What became of all of them.
pub(crate) struct Batch {
    /// The states in which all is well, in the order in which they are counted.
    pub(crate) good: &'static [&'static str],
    /// What the failed ones did not: `were not signed`.
    pub(crate) not_done: &'static str,
    /// The name of the last column.
    pub(crate) about: &'static str,
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
        let states = self.good.iter().chain(&["failed"]);
        let counts: Map<_, _> = states
            .map(|state| ((*state).to_owned(), self.count(state).into()))
            .collect();
        let items: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({ "counts": counts, "items": items })
    }

    fn show(&self, page: &mut Page) {
        let good: Vec<_> = self.rows.iter().filter(|r| r.failure.is_none()).collect();
        if !good.is_empty() && good.len() <= LINES {
            let mut table = Table::new(["STATE", "ITEM", self.about]);
            for row in good {
                table.row([
                    Cell::styled(GOOD, row.state),
                    row.item.as_str().into(),
                    Cell::styled(DIM, &row.about),
                ]);
            }
            page.table(&table);
        }
        if self.rows.len() == 1 {
            return;
        }
        for failure in self.failed() {
            page.text(&failure.words());
        }
        let states = self.good.iter().chain(&["failed"]);
        let counts: Vec<_> = states
            .map(|state| (self.count(state), *state))
            .filter(|(count, _)| *count > 0)
            .map(|(count, state)| format!("{count} {state}"))
            .collect();
        match counts.as_slice() {
            [] => page.line("there is nothing to do"),
            counts => page.line(paint(BOLD, counts.join(", "))),
        }
    }

    fn failure(&self) -> Option<Failure> {
        let worst = self.failed().max_by_key(|failure| severity(failure.exit))?;
        if self.rows.len() == 1 {
            return Some(worst.clone());
        }
        let failed = self.failed().count();
        let message = format!("{failed} of {} {}", self.rows.len(), self.not_done);
        let code = match worst.exit {
            Exit::Integrity => "integrity",
            _ => worst.code,
        };
        Some(Failure::new(worst.exit, code, message))
    }
}

/// Which of several failures the exit code tells: that something is not what was
/// signed before that something cannot be read.
fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Integrity => u8::MAX,
        other => other as u8,
    }
}
