//! Writes an item for each tool of a server.

use std::collections::BTreeMap;
use std::fs;

use lillux::PathContext as _;
use lillux::durable::IfExists;
use rye_items::Space;
use rye_mcp::client::discovery::{Change, DiscoveredServer, Finding, compare};
use rye_mcp::client::{RemoteTool, ServerSpec};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::failure::Failure;
use crate::mcp_items as items;

/// A tool of a server, compared with its accepted definition.
pub struct ComparedTool {
    /// The tool, and how it differs.
    pub finding: Finding,
    /// The changed parts of its definition.
    pub differences: Vec<Difference>,
}

/// A changed part of a tool's definition.
pub struct Difference {
    /// Name of the part.
    pub part: String,
    /// The accepted value, if it was stored.
    pub before: Option<Value>,
    /// The current value.
    pub after: Option<Value>,
}

/// Compares the tools that a server has with the accepted ones, and writes and signs items for new
/// ones. With `accept`, also for changed ones, and removes those that no longer exist.
pub fn discover(
    name: &str,
    server: &ServerSpec,
    space: Space,
    listed: &[RemoteTool],
    accept: bool,
    context: &Context,
) -> Result<Vec<ComparedTool>, Failure> {
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let root = items::root(library, space)?;
    let existing = items::tools(library, space, name);
    let accepted: BTreeMap<_, _> = existing
        .iter()
        .map(|item| (item.tool.clone(), item.pin.clone()))
        .collect();
    let findings = compare(
        &DiscoveredServer {
            name,
            transport: &server.config.transport,
            tools: listed,
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
            (Change::Changed(_), Some(text)) if accept => {
                let file = format!("tools/{}.yaml", finding.id);
                items::write(library, root, &file, text, IfExists::Replace, key)?;
            }
            (Change::Removed, _) if accept => {
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
        ComparedTool {
            finding,
            differences,
        }
    });
    Ok(findings.collect())
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
