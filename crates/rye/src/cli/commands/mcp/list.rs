//! `rye mcp list`: lists servers.

use rye_host::mcp_items as items;
use rye_items::{ItemKind, Library, Space};
use rye_mcp::client::{ConfigValue, ServerConfig, Transport};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, Page};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

const SERVERS: &str = "mcp/servers/";

pub(crate) fn run(context: &Context) -> Outcome {
    let library = context.library()?;
    let trust = library.trust();
    let mut rows = Vec::new();
    for listed in library.list(ItemKind::Tool) {
        let Ok(found) = listed else {
            continue;
        };
        let Some(name) = found.reference.id.as_str().strip_prefix(SERVERS) else {
            continue;
        };
        let space = found.root.space();
        let read = library
            .verify(&found, &trust)
            .map_err(Failure::from)
            .and_then(|item| items::read_config(library, &item));
        rows.push(row(library, name, space, read));
    }
    Ok(Box::new(List(rows)))
}

struct Row {
    name: String,
    space: Space,
    transport: &'static str,
    target: String,
    tools: usize,
    failure: Option<Failure>,
}

fn row(library: &Library, name: &str, space: Space, read: Result<ServerConfig, Failure>) -> Row {
    let (transport, target, failure) = match read {
        Ok(config) => (config.transport.name(), target(&config.transport), None),
        Err(failure) => ("", String::new(), Some(failure)),
    };
    Row {
        name: name.to_owned(),
        space,
        transport,
        target,
        tools: items::tools(library, space, name).len(),
        failure,
    }
}

/// Command or URL of the server, without resolving variables.
fn target(transport: &Transport) -> String {
    let text = |source: &ConfigValue| match source {
        ConfigValue::Text(text) => text.clone(),
        ConfigValue::Vault { name, .. } => format!("{{vault: {name}}}"),
    };
    match transport {
        Transport::Stdio { command, args, .. } => {
            let words = std::iter::once(command.clone()).chain(args.iter().map(text));
            words.collect::<Vec<_>>().join(" ")
        }
        Transport::Http { url, .. } => text(url),
    }
}

struct List(Vec<Row>);

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
