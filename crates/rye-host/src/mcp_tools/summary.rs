//! Search and summaries of MCP tools.

use rye_engine::policy::Risk;
use rye_engine::tool_provider::ToolSummary;
use rye_mcp::client::RemoteTool;
use serde_json::Value;

/// How well a tool matches search terms; 0 if not at all.
pub(super) fn score(tool: &RemoteTool, server: &str, terms: &[String]) -> usize {
    if terms.is_empty() {
        return 1;
    }
    let name = format!("{server}/{}", tool.name()).to_lowercase();
    let description = tool.description().to_lowercase();
    let scores = terms
        .iter()
        .map(|term| 3 * usize::from(name.contains(term)) + usize::from(description.contains(term)));
    scores.sum()
}

pub(super) fn summary(server: &str, space: &str, tool: &RemoteTool) -> ToolSummary {
    let properties = tool.input_schema().get("properties");
    let properties = properties.and_then(Value::as_object);
    let names = properties.map(|all| all.keys().cloned().collect());
    ToolSummary {
        id: format!("{server}/{}", tool.name()),
        description: tool.description().to_owned(),
        parameters: names.unwrap_or_default(),
        risk: Some(risk(tool)),
        space: Some(space.to_owned()),
        schema: Some(tool.input_schema().clone()),
    }
}

/// Risk of a tool according to the hints of its server.
pub(super) fn risk(tool: &RemoteTool) -> Risk {
    let has_hint = |hint: &str, value: bool| tool.hint(hint) == Some(value);
    if has_hint("readOnlyHint", true) {
        Risk::Low
    } else if has_hint("destructiveHint", false) {
        Risk::Medium
    } else {
        Risk::High
    }
}
