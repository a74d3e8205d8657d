//! `rye run list`

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::record::Run;
use super::{about, graph, state_cell};
use crate::cli::page::{DIM, Page, paint};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};

/// All runs, of whichever kind.
pub(super) struct List {
    background: Vec<Run>,
    graphs: Vec<rye_graph::RunRecord>,
}

impl List {
    /// Of a graph that is in the background as well, its own record tells more.
    pub(super) fn of(mut background: Vec<Run>, graphs: Vec<rye_graph::RunRecord>) -> Self {
        background.retain(|run| graphs.iter().all(|it| it.id() != run.id));
        Self { background, graphs }
    }
}

impl Report for List {
    fn json(&self) -> Value {
        let mut runs: Vec<_> = self.background.iter().map(about).collect();
        runs.extend(self.graphs.iter().map(graph::about));
        runs.sort_by(|a, b| b["id"].as_str().cmp(&a["id"].as_str()));
        json!({ "runs": runs })
    }

    fn show(&self, page: &mut Page) {
        let mut rows: Vec<_> = self
            .background
            .iter()
            .map(|run| {
                let (asked, state) = (&run.asked, state_cell(run.state()));
                (
                    asked.started_at.clone(),
                    run.id.as_str(),
                    state,
                    asked.item_id.as_str(),
                )
            })
            .collect();
        rows.extend(self.graphs.iter().map(|run| {
            let state = graph::standing_cell(run.state());
            (
                graph::moment(run.started_at()),
                run.id(),
                state,
                run.graph(),
            )
        }));
        if rows.is_empty() {
            page.line("there are no runs");
            page.line(paint(DIM, "next: rye execute --async ID"));
            return;
        }
        // A name says when, to a part of a second.
        rows.sort_by_key(|row| Reverse(row.1));
        let mut table = Table::new(["ID", "STATE", "STARTED", "TOOL"]);
        for (started, id, state, tool) in rows {
            table.row([id.into(), state, Cell::styled(DIM, started), tool.into()]);
        }
        page.table(&table);
    }
}
