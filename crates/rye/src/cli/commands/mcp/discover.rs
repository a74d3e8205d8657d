//! `rye mcp discover`: writes an item for each tool of a server.

use std::collections::BTreeMap;
use std::fs;

use lillux::PathContext as _;
use lillux::durable::IfExists;
use rye_host::mcp_items as items;
use rye_mcp::client::discovery::{Change, DiscoveredServer, Finding, compare};
use serde_json::{Map, Value, json};

use super::super::execute::StartedSupervisor;
use super::difference::Difference;
use crate::cli::args::DiscoverArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(
    args: &DiscoverArgs,
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    let name = args.name.as_str();
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let item = items::ServerItem::load(library, args.name.as_str())?;
    let space = item.item.space;
    let root = items::root(library, space)?;
    let server = item.server(context);
    let listed = super::with_pool(supervisor, context, async |pool| pool.tools(&server).await)??;
    let existing = items::tools(library, space, name);
    let accepted: BTreeMap<_, _> = existing
        .iter()
        .map(|item| (item.tool.clone(), item.pin.clone()))
        .collect();
    let findings = compare(
        &DiscoveredServer {
            name,
            transport: &server.config.transport,
            tools: &listed,
        },
        &accepted,
    );
    for finding in &findings {
        match (&finding.change, &finding.text) {
            (Change::Added, Some(text)) => {
                let file = format!("tools/{}.yaml", finding.id);
                // An existing file that does not verify is not overwritten.
                items::write(library, root, &file, text, IfExists::Fail, key)
                    .map_err(|failure| failure.or_hint(format!("rye verify {}", finding.id)))?;
            }
            (Change::Changed(_), Some(text)) if args.accept => {
                let file = format!("tools/{}.yaml", finding.id);
                items::write(library, root, &file, text, IfExists::Replace, key)?;
            }
            (Change::Removed, _) if args.accept => {
                let removed = existing.iter().filter(|item| item.tool == finding.tool);
                for item in removed {
                    let path = item.found.path();
                    fs::remove_file(&path).at("remove", &path)?;
                }
            }
            _ => {}
        }
    }
    let findings = findings.into_iter().map(|finding| {
        let before = existing.iter().find(|item| item.tool == finding.tool);
        let differences = match &finding.change {
            Change::Changed(parts) => differences(parts, before, &finding.definition),
            _ => Vec::new(),
        };
        (finding, differences)
    });
    Ok(Box::new(DiscoverReport {
        name: name.to_owned(),
        accept: args.accept,
        findings: findings.collect(),
    }))
}

fn differences(
    parts: &[String],
    before: Option<&items::ToolItem<'_>>,
    definition: &Map<String, Value>,
) -> Vec<Difference> {
    let differences = parts.iter().map(|part| Difference {
        part: part.clone(),
        before: before.and_then(|item| item.definition.get(part).cloned()),
        after: definition.get(part).cloned(),
    });
    differences.collect()
}

struct DiscoverReport {
    name: String,
    accept: bool,
    findings: Vec<(Finding, Vec<Difference>)>,
}

impl Report for DiscoverReport {
    fn json(&self) -> Value {
        let tools: Vec<_> = self
            .findings
            .iter()
            .map(|(finding, differences)| {
                let mut tool = json!({
                    "tool": finding.tool,
                    "item": finding.id,
                    "change": finding.change.as_str(),
                });
                match &finding.change {
                    Change::Changed(parts) => {
                        tool["parts"] = json!(parts);
                        let all = differences.iter();
                        tool["differences"] = all.map(Difference::json).collect();
                    }
                    Change::Unusable(reason) => tool["reason"] = json!(reason),
                    _ => {}
                }
                tool
            })
            .collect();
        json!({ "server": self.name, "accepted": self.accept, "tools": tools })
    }

    fn show(&self, page: &mut Page) {
        if self.findings.is_empty() {
            page.line(format_args!("{} has no tools", self.name));
            return;
        }
        let mut table = Table::new(["CHANGE", "ITEM", "TOOL"]);
        for (finding, _) in &self.findings {
            let (style, detail) = match &finding.change {
                Change::Added => (GOOD, finding.tool.clone()),
                Change::Same => (DIM, finding.tool.clone()),
                Change::Changed(parts) => (WARN, format!("{}: {}", finding.tool, parts.join(", "))),
                Change::Removed => (WARN, finding.tool.clone()),
                Change::Unusable(why) => (BAD, format!("{}: {why}", finding.tool)),
            };
            table.row([
                Cell::styled(style, finding.change.as_str()),
                finding.id.as_str().into(),
                Cell::styled(DIM, detail),
            ]);
        }
        page.table(&table);
        for (finding, differences) in &self.findings {
            for difference in differences {
                difference.show(page, &finding.id);
            }
        }
        if self.accept {
            page.line(paint(DIM, "changes accepted"));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let differs = |(finding, _): &&(Finding, Vec<Difference>)| {
            matches!(finding.change, Change::Changed(_) | Change::Removed) && !self.accept
        };
        let count = self.findings.iter().filter(differs).count();
        (count > 0).then(|| {
            let tools = if count == 1 {
                "1 tool".to_owned()
            } else {
                format!("{count} tools")
            };
            let message =
                format!("{tools} changed on the server; the accepted items are unchanged");
            let hint = format!("rye mcp discover {} --accept", self.name);
            Failure::new(Exit::Integrity, "mcp_drift", message).hint(hint)
        })
    }
}
