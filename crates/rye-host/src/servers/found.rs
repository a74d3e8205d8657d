//! What is said of a server's tool where tools are looked for.

use rye_engine::meta_tools::{Risk, ToolSummary};
use rye_mcp::client::RemoteTool;
use serde_json::Value;

/// How well a tool fits some words; not at all is 0.
pub(super) fn score(tool: &RemoteTool, server: &str, words: &[String]) -> usize {
    if words.is_empty() {
        return 1;
    }
    let name = format!("{server}/{}", tool.name()).to_lowercase();
    let described = tool.description().to_lowercase();
    let each = words
        .iter()
        .map(|word| 3 * usize::from(name.contains(word)) + usize::from(described.contains(word)));
    each.sum()
}

pub(super) fn listed(server: &str, space: &str, tool: &RemoteTool) -> ToolSummary {
    let properties = tool.input_schema().get("properties");
    let properties = properties.and_then(Value::as_object);
    let names = properties.map(|all| all.keys().cloned().collect());
    ToolSummary {
        id: format!("{server}/{}", tool.name()),
        description: tool.description().to_owned(),
        parameters: names.unwrap_or_default(),
        risk: Some(risk(tool)),
        space: Some(space.to_owned()),
    }
}

/// How much harm a tool can do, as far as its server says.
pub(super) fn risk(tool: &RemoteTool) -> Risk {
    let says = |hint: &str, value: bool| tool.hint(hint) == Some(value);
    if says("readOnlyHint", true) {
        Risk::Low
    } else if says("destructiveHint", false) {
        Risk::Medium
    } else {
        Risk::High
    }
}
