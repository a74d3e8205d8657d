//! `rye run list`: background runs and graph runs.

use std::cmp::Reverse;

use rye_host::lookup::unique_short_id;
use serde_json::{Value, json};

use super::record::Run;
use super::{graph, run_json, state_cell};
use crate::cli::page::{DIM, Page, paint};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};

/// All runs, newest first.
pub(super) struct List {
    background: Vec<Run>,
    graphs: Vec<rye_graph::RunRecord>,
}

impl List {
    /// A graph run in the background appears once, with its own record, which says more.
    pub(super) fn new(mut background: Vec<Run>, graphs: Vec<rye_graph::RunRecord>) -> Self {
        background.retain(|run| graphs.iter().all(|it| it.id() != run.id));
        Self { background, graphs }
    }
}

impl Report for List {
    fn json(&self) -> Value {
        let mut runs: Vec<_> = self.background.iter().map(run_json).collect();
        runs.extend(self.graphs.iter().map(graph::run_json));
        runs.sort_by(|a, b| b["id"].as_str().cmp(&a["id"].as_str()));
        json!({ "runs": runs })
    }

    fn show(&self, page: &mut Page) {
        let mut rows: Vec<_> = self
            .background
            .iter()
            .map(|run| {
                let (request, state) = (&run.request, state_cell(run.state()));
                (
                    request.started_at.clone(),
                    run.id.as_str(),
                    state,
                    request.item_id.as_str(),
                )
            })
            .collect();
        rows.extend(self.graphs.iter().map(|run| {
            let state = graph::state_cell(run.state());
            (
                graph::timestamp(run.started_at()),
                run.id(),
                state,
                run.graph(),
            )
        }));
        if rows.is_empty() {
            page.line("no runs");
            page.line(paint(DIM, "next: rye execute --async ID"));
            return;
        }
        // Ids begin with the time, to a fraction of a second.
        rows.sort_by_key(|row| Reverse(row.1));
        let ids: Vec<_> = rows.iter().map(|row| row.1).collect();
        let mut table = Table::new(["RUN", "STATE", "STARTED", "TOOL"]);
        for (started, id, state, tool) in rows {
            let id = unique_short_id(id, ids.iter().copied());
            table.row([id.into(), state, Cell::styled(DIM, started), tool.into()]);
        }
        page.table(&table);
    }
}
