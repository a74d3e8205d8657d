//! `rye mcp import`: adds the servers in the configuration file of another client.

use std::fs;

use lillux::PathContext as _;
use lillux::durable::IfExists;
use lillux::envelope::Secret;
use rye_host::mcp_items as items;
use rye_items::vault::Vault;
use rye_mcp::client::import::{self, ImportedServer};
use serde_json::{Value, json};

use crate::cli::args::{ImportArgs, ServerName};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: &ImportArgs, context: &Context) -> Outcome {
    let text = fs::read_to_string(&args.file).at("read", &args.file)?;
    let dir = context.settings.project().to_string_lossy();
    let servers = import::parse(text.trim_start_matches('\u{feff}'), &dir)
        .map_err(|why| Failure::failed("bad_file", why).at(&args.file))?;
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let root = items::root(library, args.space.into())?;
    let user = context.settings.user_space()?;
    let vault = Vault::new(user, Some(context.settings.project()));
    let existing = if args.force {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let mut rows = Vec::new();
    for entry in servers {
        let ImportedServer {
            name,
            config,
            secrets,
            notes,
        } = entry;
        let added = config
            .map_err(|why| Failure::failed("unsupported", why))
            .and_then(|config| {
                let name: ServerName = name.parse().map_err(Failure::usage)?;
                let file = items::server_file(name.as_str());
                if !args.force && root.stat(&file)?.is_some() {
                    let hint = format!("rye mcp import --force {}", args.file.display());
                    let message = format!("server {name} already exists");
                    return Err(Failure::failed("exists", message).hint(hint));
                }
                // Secrets first, so that a configuration never refers to a missing one.
                for (name, value) in &secrets {
                    vault.set(args.space.into(), name, &Secret::new(value.clone().into()))?;
                }
                let text = items::server_text(name.as_str(), &config);
                items::write(library, root, &file, &text, existing, key)?;
                Ok(())
            });
        let stored = match &added {
            Ok(()) => secrets.iter().map(|(name, _)| name.to_string()).collect(),
            Err(_) => Vec::new(),
        };
        rows.push(Row {
            name,
            secrets: stored,
            notes,
            failure: added.err(),
        });
    }
    Ok(Box::new(ImportReport(rows)))
}

struct Row {
    name: String,
    secrets: Vec<String>,
    notes: Vec<String>,
    failure: Option<Failure>,
}

impl Row {
    /// Text of the last column.
    fn detail(&self) -> String {
        let mut detail = Vec::new();
        match &self.failure {
            Some(failure) => detail.push(failure.message.clone()),
            None if self.secrets.is_empty() => {}
            None => detail.push(format!("stored in the vault: {}", self.secrets.join(", "))),
        }
        detail.extend(self.notes.iter().cloned());
        detail.join("; ")
    }

    fn state(&self) -> &'static str {
        if self.failure.is_some() {
            "skipped"
        } else {
            "added"
        }
    }
}

struct ImportReport(Vec<Row>);

impl Report for ImportReport {
    fn json(&self) -> Value {
        let servers: Vec<_> = self
            .0
            .iter()
            .map(|row| {
                let mut server = json!({
                    "name": row.name,
                    "state": row.state(),
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
                Cell::styled(style, row.state()),
                row.name.as_str().into(),
                Cell::styled(DIM, row.detail()),
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
