//! The outcome of one operation on many items.

use serde_json::{Map, Value, json};

use crate::failure::{Failure, FailureKind};

/// The outcome for one item.
pub struct Row {
    /// Outcome in one word: `signed`, `verified`, `failed`.
    pub state: &'static str,
    /// The item, or the argument that names it.
    pub item: String,
    /// Text of the last column, for successful items.
    pub detail: String,
    /// Additional JSON fields.
    pub fields: Map<String, Value>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl Row {
    /// The row of an item that could not be processed.
    pub fn failed(item: impl Into<String>, failure: Failure) -> Self {
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
pub struct Batch {
    /// States that count as success, in the order of the totals.
    pub success_states: &'static [&'static str],
    /// What did not happen to failed items: `were not signed`.
    pub not_done: &'static str,
    /// Heading of the last column.
    pub detail_heading: &'static str,
    /// A row per item.
    pub rows: Vec<Row>,
}

impl Batch {
    /// The number of items per state, successes first.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let states = self.success_states.iter().chain(&["failed"]);
        states.map(|state| (*state, self.count(state)))
    }

    fn count(&self, state: &str) -> usize {
        self.rows.iter().filter(|row| row.state == state).count()
    }

    /// The failures of items.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.rows.iter().filter_map(|row| row.failure.as_ref())
    }

    /// The outcome as JSON.
    pub fn json(&self) -> Value {
        let counts = self
            .counts()
            .map(|(state, count)| (state.to_owned(), count.into()));
        let counts: Map<_, _> = counts.collect();
        let items: Vec<_> = self.rows.iter().map(Row::json).collect();
        json!({ "counts": counts, "items": items })
    }

    /// The failure, if an item failed.
    pub fn failure(&self) -> Option<Failure> {
        let worst = self
            .failures()
            .max_by_key(|failure| severity(failure.kind))?;
        if self.rows.len() == 1 {
            return Some(worst.clone());
        }
        let failed = self.failures().count();
        let message = format!("{failed} of {} {}", self.rows.len(), self.not_done);
        let code = match worst.kind {
            FailureKind::Integrity => "integrity",
            _ => worst.code,
        };
        Some(Failure::new(worst.kind, code, message))
    }
}

/// Rank of a failure for the choice of the exit code: integrity failures come first.
fn severity(exit: FailureKind) -> u8 {
    match exit {
        FailureKind::Integrity => u8::MAX,
        other => other as u8,
    }
}
