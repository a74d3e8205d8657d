//! `rye mcp import`

use std::fs;

use lillux::At as _;
use lillux::durable::Existing;
use lillux::envelope::Secret;
use rye_items::vault::Vault;
use rye_mcp::client::import::{self, ImportedServer};
use serde_json::{Value, json};

use super::items;
use crate::cli::args::{ImportArgs, ServerName};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: &ImportArgs, context: &Context) -> Outcome {
    let text = fs::read_to_string(&args.file).at("read", &args.file)?;
    let folder = context.settings.project().to_string_lossy();
    let read = import::parse(text.trim_start_matches('\u{feff}'), &folder)
        .map_err(|why| Failure::failed("bad_file", why).at(&args.file))?;
    let library = context.library()?;
    let key = items::key(context)?;
    let root = items::root(&library, args.space.into())?;
    let user = context.settings.user_space()?;
    let vault = Vault::new(user, Some(context.settings.project()));
    let existing = if args.force {
        Existing::Replace
    } else {
        Existing::Refuse
    };
    let mut rows = Vec::new();
    for entry in read {
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
                    return Err(Failure::failed("exists", "there is one of that name").hint(hint));
                }
                // Secrets first: a configuration never refers to what is not there.
                for (name, value) in &secrets {
                    vault.set(args.space.into(), name, &Secret::new(value.clone().into()))?;
                }
                let text = items::server_text(name.as_str(), &config);
                items::write(&library, root, &file, &text, existing, &key)?;
                Ok(())
            });
        let kept = match &added {
            Ok(()) => secrets.iter().map(|(name, _)| name.to_string()).collect(),
            Err(_) => Vec::new(),
        };
        rows.push(Row {
            name,
            secrets: kept,
            notes,
            failure: added.err(),
        });
    }
    Ok(Box::new(Rows(rows)))
}

struct Row {
    name: String,
    secrets: Vec<String>,
    notes: Vec<String>,
    failure: Option<Failure>,
}

impl Row {
    /// What there is to know of it.
    fn about(&self) -> String {
        let mut about = Vec::new();
        match &self.failure {
            Some(failure) => about.push(failure.message.clone()),
            None if self.secrets.is_empty() => {}
            None => about.push(format!("now in the vault: {}", self.secrets.join(", "))),
        }
        about.extend(self.notes.iter().cloned());
        about.join("; ")
    }

    fn state(&self) -> &'static str {
        if self.failure.is_some() {
            "left out"
        } else {
            "added"
        }
    }
}

struct Rows(Vec<Row>);

impl Report for Rows {
    fn json(&self) -> Value {
        let servers: Vec<_> = self
            .0
            .iter()
            .map(|row| {
                let mut about = json!({
                    "name": row.name,
                    "state": if row.failure.is_some() { "left_out" } else { "added" },
                    "secrets": row.secrets,
                    "notes": row.notes,
                });
                if let Some(failure) = &row.failure {
                    about["error"] = failure.json();
                }
                about
            })
            .collect();
        json!({ "servers": servers })
    }

    fn show(&self, page: &mut Page) {
        let mut table = Table::new(["STATE", "NAME", "ABOUT"]);
        for row in &self.0 {
            let style = if row.failure.is_some() { BAD } else { GOOD };
            table.row([
                Cell::styled(style, row.state()),
                row.name.as_str().into(),
                Cell::styled(DIM, row.about()),
            ]);
        }
        page.table(&table);
        if self.0.iter().any(|row| !row.secrets.is_empty()) {
            let text = "the file still has its secrets in plain text; remove them where you can";
            page.line(paint(DIM, text));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let count = self.0.iter().filter(|row| row.failure.is_some()).count();
        let first = self.0.iter().find_map(|row| row.failure.as_ref())?;
        let servers = if count == 1 {
            "server was"
        } else {
            "servers were"
        };
        let message = format!("{count} {servers} left out");
        Some(Failure::failed(first.code, message).maybe_hint(first.hint.clone()))
    }
}
