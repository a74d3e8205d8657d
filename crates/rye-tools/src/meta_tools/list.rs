//! The tool `list_tools`: searches the tools of all providers.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::ToolHub;
use crate::tool;
use rye_engine::tool::{EffectClass, Tool, ToolDef, ToolError, ToolOutput};
use rye_engine::tool_provider::ToolSummary;

/// Default number of results.
const DEFAULT_LIMIT: usize = 20;
/// Maximum number of results.
const MAX_LIMIT: usize = 200;

#[derive(Deserialize)]
struct Args {
    service: Option<String>,
    query: Option<String>,
    limit: Option<usize>,
}

pub(super) fn list_tools(hub: Arc<ToolHub>) -> impl Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "service": { "type": "string", "description": "Only tools of this service." },
            "query": { "type": "string", "description": "Words that describe the tool." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }
        },
        "additionalProperties": false
    });
    let description = format!(
        "Searches for more tools. There may be thousands, so describe what you need. \
         Services: {}.",
        hub.services()
    );
    let def = ToolDef::new("list_tools", description, parameters).effect(EffectClass::Pure);
    tool(def, move |args, _| list(args, Arc::clone(&hub)))
}

async fn list(args: Args, hub: Arc<ToolHub>) -> Result<ToolOutput, ToolError> {
    let query = args.query.unwrap_or_default();
    let limit = args.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let (mut results, mut total, mut warnings) = (Vec::new(), 0, Vec::new());
    let service = args.service.as_deref();
    let mut is_known = false;
    for provider in &hub.providers {
        if service.is_some_and(|name| name != provider.service()) {
            continue;
        }
        is_known = true;
        match provider.list(&query, limit).await {
            Ok(listing) => {
                total += listing.total;
                warnings.extend(listing.warnings);
                results.push((provider.service(), listing.tools.into_iter()));
            }
            // A failing provider does not hide the others.
            Err(error) => warnings.push(format!("{}: {error}", provider.service())),
        }
    }
    if !is_known {
        let message = format!("unknown service; services: {}", hub.services());
        return Err(ToolError::failed(message));
    }
    let found = interleave(results, limit);
    Ok(format_results(&found, total, &warnings))
}

/// Interleaves the results: the best of each provider, then the second best, and so on, because
/// the ranks of different providers are not comparable.
fn interleave(
    mut results: Vec<(&str, impl Iterator<Item = ToolSummary>)>,
    limit: usize,
) -> Vec<(&str, ToolSummary)> {
    let mut found = Vec::new();
    while found.len() < limit {
        let previous = found.len();
        for (service, tools) in &mut results {
            found.extend(tools.next().map(|it| (*service, it)));
        }
        if found.len() == previous {
            break;
        }
    }
    found.truncate(limit);
    found
}

fn format_results(found: &[(&str, ToolSummary)], total: usize, warnings: &[String]) -> ToolOutput {
    let mut text = String::new();
    for (service, tool) in found {
        let parameters = match tool.parameters.as_slice() {
            [] => String::new(),
            names => format!(" ({})", names.join(", ")),
        };
        let risk = tool
            .risk
            .map_or(String::new(), |risk| format!(" [{}]", risk.as_str()));
        let description = tool.description.lines().next().unwrap_or_default();
        let _ = writeln!(
            text,
            "{service}:{}{parameters}{risk}: {description}",
            tool.id
        );
    }
    if found.is_empty() {
        text += "no matching tools\n";
    } else if total > found.len() {
        let _ = writeln!(text, "… and {} less relevant tools", total - found.len());
    }
    for warning in warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    let tools: Vec<_> = found
        .iter()
        .map(|(service, tool)| {
            let mut value = json!(tool);
            value["id"] = json!(format!("{service}:{}", tool.id));
            value
        })
        .collect();
    ToolOutput::new(
        text,
        json!({ "tools": tools, "total": total, "warnings": warnings }),
    )
}
