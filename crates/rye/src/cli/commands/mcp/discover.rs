//! `rye mcp discover`: writes an item for each tool of a server.

use rye_host::mcp::discover::{ComparedTool, discover};
use rye_host::mcp_items::ServerItem;
use rye_mcp::client::discovery::Change;
use serde_json::{Value, json};

use super::super::execute::StartedSupervisor;
use super::difference;
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
    // Discovery signs what it writes.
    context.require_signing_key()?;
    let item = ServerItem::load(context.library()?, name)?;
    let space = item.item.space;
    let server = item.server(context);
    let listed = super::first_tools(supervisor, context, server.clone())??;
    Ok(Box::new(DiscoverReport {
        name: name.to_owned(),
        accept: args.accept,
        tools: discover(name, &server, space, &listed, args.accept, context)?,
    }))
}

struct DiscoverReport {
    name: String,
    accept: bool,
    tools: Vec<ComparedTool>,
}

impl Report for DiscoverReport {
    fn json(&self) -> Value {
        let tools: Vec<_> = self
            .tools
            .iter()
            .map(|compared| {
                let finding = &compared.finding;
                let mut tool = json!({
                    "tool": finding.tool,
                    "item": finding.id,
                    "change": finding.change.as_str(),
                });
                match &finding.change {
                    Change::Changed(parts) => {
                        tool["parts"] = json!(parts);
                        let all = compared.differences.iter();
                        tool["differences"] = all.map(difference::json).collect();
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
        if self.tools.is_empty() {
            page.line(format_args!("{} has no tools", self.name));
            return;
        }
        let mut table = Table::new(["CHANGE", "ITEM", "TOOL"]);
        for ComparedTool { finding, .. } in &self.tools {
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
        for compared in &self.tools {
            for difference in &compared.differences {
                difference::show(difference, page, &compared.finding.id);
            }
        }
        if self.accept {
            page.line(paint(DIM, "changes accepted"));
        }
    }

    fn failure(&self) -> Option<Failure> {
        let differs = |tool: &&ComparedTool| {
            let change = &tool.finding.change;
            matches!(change, Change::Changed(_) | Change::Removed) && !self.accept
        };
        let count = self.tools.iter().filter(differs).count();
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
