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
const DEFAULT_LIMIT: usize = 50;
/// Maximum number of results.
const MAX_LIMIT: usize = 200;
/// Maximum size of all schemas in the result, in bytes. Tools beyond it are listed without one.
const MAX_SCHEMAS: usize = 24_000;
/// Maximum length of a description in one line, in characters.
const MAX_DESCRIPTION: usize = 300;

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
            "query": { "type": "string", "description": "Words that describe the tool. Default: all." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "Maximum number of tools. Default: 50." }
        },
        "additionalProperties": false
    });
    let description = format!(
        "Searches for more tools, such as scripts of the project and MCP servers, and returns \
         their parameters as JSON Schema. There may be thousands: say in a few words what you \
         need. Services: {}.",
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
    let mut found = interleave(results, limit);
    limit_schemas(&mut found, MAX_SCHEMAS);
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

/// Removes the schemas that exceed the budget, the least relevant first.
fn limit_schemas(found: &mut [(&str, ToolSummary)], mut budget: usize) {
    for (_, tool) in found {
        let Some(schema) = &tool.schema else {
            continue;
        };
        let rest = budget.checked_sub(schema.to_string().len());
        if rest.is_none() {
            tool.schema = None;
        }
        budget = rest.unwrap_or_default();
    }
}

fn format_results(found: &[(&str, ToolSummary)], total: usize, warnings: &[String]) -> ToolOutput {
    let mut text = String::new();
    for (service, tool) in found {
        let parameters = match (tool.parameters.as_slice(), &tool.schema) {
            ([], _) | (_, Some(_)) => String::new(),
            (names, None) => format!(" ({})", names.join(", ")),
        };
        let risk = tool
            .risk
            .map_or(String::new(), |risk| format!(" [{}]", risk.as_str()));
        let description = tool.description.lines().next().unwrap_or_default();
        let description: String = description.chars().take(MAX_DESCRIPTION).collect();
        let _ = writeln!(
            text,
            "{service}:{}{parameters}{risk}: {description}",
            tool.id
        );
        if let Some(schema) = &tool.schema {
            let _ = writeln!(text, "  {schema}");
        }
    }
    let is_partial =
        |(_, tool): &(&str, ToolSummary)| tool.schema.is_none() && !tool.parameters.is_empty();
    if found.iter().any(is_partial) {
        text += "[some tools are listed without schema: search for fewer of them]\n";
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

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(id: &str, schema: Option<serde_json::Value>) -> ToolSummary {
        ToolSummary {
            id: id.to_owned(),
            description: "Does it.\nMore.".to_owned(),
            parameters: vec!["name".to_owned()],
            schema,
            ..ToolSummary::default()
        }
    }

    #[test]
    fn schemas_are_listed_until_the_budget_is_used_up() {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let length = schema.to_string().len();
        let tool = |id: &str| ("item", summary(id, Some(schema.clone())));
        let mut found = vec![
            tool("one"),
            tool("two"),
            tool("three"),
            ("mcp", summary("four", None)),
        ];
        limit_schemas(&mut found, 2 * length + 1);
        let output = format_results(&found, 5, &[]);
        assert_eq!(
            output.text,
            format!(
                "item:one: Does it.\n  {schema}\nitem:two: Does it.\n  {schema}\n\
                 item:three (name): Does it.\nmcp:four (name): Does it.\n\
                 [some tools are listed without schema: search for fewer of them]\n\
                 … and 1 less relevant tools\n"
            )
        );
        assert_eq!(output.data["tools"][0]["schema"], schema);
        assert_eq!(output.data["tools"][2].get("schema"), None);
    }
}
