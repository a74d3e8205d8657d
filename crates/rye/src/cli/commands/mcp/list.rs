//! `rye mcp list`: lists servers.

use rye_host::mcp::list::{ListedServer, list};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, Page};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(context: &Context) -> Outcome {
    Ok(Box::new(List(list(context)?)))
}

struct List(Vec<ListedServer>);

impl Report for List {
    fn json(&self) -> Value {
        let servers: Vec<_> = self
            .0
            .iter()
            .map(|row| {
                json!({
                    "name": row.name,
                    "transport": row.transport,
                    "space": row.space,
                    "state": row.failure.as_ref().map_or("signed", |failure| failure.code),
                    "tools": row.tools,
                    "target": row.target,
                })
            })
            .collect();
        json!({ "servers": servers })
    }

    fn show(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("no servers");
            return;
        }
        let mut table = Table::new(["NAME", "TRANSPORT", "SPACE", "STATE", "TOOLS", "TARGET"]);
        for row in &self.0 {
            let state = match &row.failure {
                None => Cell::styled(GOOD, "signed"),
                Some(failure) => Cell::styled(BAD, failure.code),
            };
            table.row([
                row.name.as_str().into(),
                row.transport.into(),
                row.space.as_str().into(),
                state,
                row.tools.to_string().into(),
                Cell::styled(DIM, &row.target),
            ]);
        }
        page.table(&table);
    }

    fn failure(&self) -> Option<Failure> {
        let mut failures = self.0.iter().filter_map(|row| row.failure.as_ref());
        failures.next().cloned()
    }
}
