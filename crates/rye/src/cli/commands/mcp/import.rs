//! `rye mcp import`: adds the servers in the configuration file of another client.

use rye_host::mcp::import::{ImportOutcome, import};
use serde_json::{Value, json};

use crate::cli::args::ImportArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: &ImportArgs, context: &Context) -> Outcome {
    let servers = import(&args.file, args.space.into(), args.force, context)?;
    Ok(Box::new(ImportReport(servers)))
}

/// Text of the last column.
fn detail(row: &ImportOutcome) -> String {
    let mut detail = Vec::new();
    match &row.failure {
        Some(failure) => detail.push(failure.message.clone()),
        None if row.secrets.is_empty() => {}
        None => detail.push(format!("stored in the vault: {}", row.secrets.join(", "))),
    }
    detail.extend(row.notes.iter().cloned());
    detail.join("; ")
}

fn state(row: &ImportOutcome) -> &'static str {
    match row.failure {
        Some(_) => "skipped",
        None => "added",
    }
}

struct ImportReport(Vec<ImportOutcome>);

impl Report for ImportReport {
    fn json(&self) -> Value {
        let servers: Vec<_> = self
            .0
            .iter()
            .map(|row| {
                let mut server = json!({
                    "name": row.name,
                    "state": state(row),
                    "secrets": row.secrets,
                    "notes": row.notes,
                });
                if let Some(failure) = &row.failure {
                    server["error"] = failure.json();
                }
                server
            })
            .collect();
        json!({ "servers": servers })
    }

    fn show(&self, page: &mut Page) {
        let mut table = Table::new(["STATE", "NAME", "DETAIL"]);
        for row in &self.0 {
            let style = if row.failure.is_some() { BAD } else { GOOD };
            table.row([
                Cell::styled(style, state(row)),
                row.name.as_str().into(),
                Cell::styled(DIM, detail(row)),
            ]);
        }
        page.table(&table);
        if self.0.iter().any(|row| !row.secrets.is_empty()) {
            let text = "the imported file still contains the secrets in plain text";
            page.line(paint(DIM, text));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let count = self.0.iter().filter(|row| row.failure.is_some()).count();
        let first = self.0.iter().find_map(|row| row.failure.as_ref())?;
        let servers = if count == 1 { "server" } else { "servers" };
        let message = format!("{count} {servers} skipped");
        Some(Failure::failed(first.code, message).maybe_hint(first.hint.clone()))
    }
}
