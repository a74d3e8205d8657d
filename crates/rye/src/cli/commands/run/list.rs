//! `rye run list`

use serde_json::{Value, json};

use super::record::Run;
use super::{about, graph, state_cell};
use crate::cli::page::{DIM, Page, paint};
use crate::cli::printer::Report;
use crate::cli::table::{Cell, Table};

/// All runs, of whichever kind.
pub(super) struct List {
    pub(super) background: Vec<Run>,
    pub(super) graphs: Vec<rye_graph::Run>,
}

impl List {
    /// How a run in the background stands; of a graph, whether it waits for a person.
    fn state_of(&self, run: &Run) -> Cell {
        let of_graph = self.graphs.iter().find(|it| it.id() == run.id);
        match of_graph.map(rye_graph::Run::standing) {
            Some(waiting @ rye_graph::Standing::Waiting) => graph::standing_cell(waiting),
            _ => state_cell(run.state()),
        }
    }

    /// Those of graphs that are not in the background as well.
    fn others(&self) -> impl Iterator<Item = &rye_graph::Run> {
        let is_known = |id: &str| self.background.iter().any(|run| run.id == id);
        self.graphs.iter().filter(move |run| !is_known(run.id()))
    }
}

impl Report for List {
    fn json(&self) -> Value {
        let mut runs: Vec<_> = self.background.iter().map(about).collect();
        runs.extend(self.others().map(graph::about));
        json!({ "runs": runs })
    }

    fn show(&self, page: &mut Page) {
        let mut rows: Vec<_> = self
            .background
            .iter()
            .map(|run| {
                let (asked, state) = (&run.asked, self.state_of(run));
                (
                    asked.started_at.clone(),
                    run.id.as_str(),
                    state,
                    asked.item_id.as_str(),
                )
            })
            .collect();
        rows.extend(self.others().map(|run| {
            let state = graph::standing_cell(run.standing());
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
        rows.sort_by(|a, b| (&b.0, b.1).cmp(&(&a.0, a.1)));
        let mut table = Table::new(["ID", "STATE", "STARTED", "TOOL"]);
        for (started, id, state, tool) in rows {
            table.row([id.into(), state, Cell::styled(DIM, started), tool.into()]);
        }
        page.table(&table);
    }
}
