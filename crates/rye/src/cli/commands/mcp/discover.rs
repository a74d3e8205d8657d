//! `rye mcp discover`

use std::collections::BTreeMap;
use std::fs;

use lillux::At as _;
use lillux::durable::Existing;
use rye_mcp::client::discovery::{Change, Discovered, Finding, compare};
use serde_json::{Value, json};

use super::super::execute::Keeper;
use super::items;
use crate::cli::args::DiscoverArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, DIM, GOOD, Page, WARN, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(crate) fn run(args: &DiscoverArgs, context: &Context, keeper: &mut Keeper) -> Outcome {
    let name = args.name.as_str();
    let library = context.library()?;
    let key = items::key(context)?;
    let item = items::ServerItem::load(&library, &args.name)?;
    let space = item.item.space;
    let root = items::root(&library, space)?;
    let server = item.server(context);
    let listed = items::with_pool(keeper, context, async |pool| pool.tools(&server).await)??;
    let there = items::tools(&library, space, name);
    let accepted: BTreeMap<_, _> = there
        .iter()
        .map(|item| (item.tool.clone(), item.pin.clone()))
        .collect();
    let findings = compare(
        &Discovered {
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
                // One that does not verify is no reason to write over it.
                items::write(&library, root, &file, text, Existing::Refuse, &key)
                    .map_err(|failure| failure.or_hint(format!("rye verify {}", finding.id)))?;
            }
            (Change::Changed(_), Some(text)) if args.accept => {
                let file = format!("tools/{}.yaml", finding.id);
                items::write(&library, root, &file, text, Existing::Replace, &key)?;
            }
            (Change::Removed, _) if args.accept => {
                let gone = there.iter().filter(|item| item.tool == finding.tool);
                for item in gone {
                    let path = item.found.path();
                    fs::remove_file(&path).at("remove", &path)?;
                }
            }
            _ => {}
        }
    }
    Ok(Box::new(Found {
        name: name.to_owned(),
        accept: args.accept,
        findings,
    }))
}

struct Found {
    name: String,
    accept: bool,
    findings: Vec<Finding>,
}

impl Report for Found {
    fn json(&self) -> Value {
        let tools: Vec<_> = self
            .findings
            .iter()
            .map(|finding| {
                let mut about = json!({
                    "tool": finding.tool,
                    "item": finding.id,
                    "change": finding.change.word(),
                });
                match &finding.change {
                    Change::Changed(parts) => about["parts"] = json!(parts),
                    Change::Unusable(why) => about["why"] = json!(why),
                    _ => {}
                }
                about
            })
            .collect();
        json!({ "server": self.name, "accepted": self.accept, "tools": tools })
    }

    fn show(&self, page: &mut Page) {
        if self.findings.is_empty() {
            page.line(format_args!("{} has no tools", self.name));
            return;
        }
        let mut table = Table::new(["CHANGE", "ITEM", "ABOUT"]);
        for finding in &self.findings {
            let (style, about) = match &finding.change {
                Change::Added => (GOOD, finding.tool.clone()),
                Change::Same => (DIM, finding.tool.clone()),
                Change::Changed(parts) => (WARN, format!("{}: {}", finding.tool, parts.join(", "))),
                Change::Removed => (WARN, finding.tool.clone()),
                Change::Unusable(why) => (BAD, format!("{}: {why}", finding.tool)),
            };
            table.row([
                Cell::styled(style, finding.change.word()),
                finding.id.as_str().into(),
                Cell::styled(DIM, about),
            ]);
        }
        page.table(&table);
        if self.accept {
            page.line(paint(DIM, "what changed was accepted"));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let differs = |finding: &&Finding| {
            matches!(finding.change, Change::Changed(_) | Change::Removed) && !self.accept
        };
        let count = self.findings.iter().filter(differs).count();
        (count > 0).then(|| {
            let tools = if count == 1 {
                "1 tool is".to_owned()
            } else {
                format!("{count} tools are")
            };
            let message = format!("{tools} not what was accepted, and left as accepted");
            let hint = format!("rye mcp discover {} --accept", self.name);
            Failure::new(Exit::Integrity, "mcp_drift", message).hint(hint)
        })
    }
}
