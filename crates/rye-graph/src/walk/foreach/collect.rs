//! Combines the results of a foreach.

use serde_json::{Map, Value, json};

use super::{ItemResult, Items};
use crate::definition::{Foreach, Graph};
use crate::walk::{NodeResult, display_text};
use rye_protocol::{NodeError, NodeOutcome};

/// Collects the results of all items, also if some of them failed.
pub(super) fn collect(foreach: &Foreach, items: Items<'_>) -> NodeResult {
    let total = items.results.len();
    let no_result = || Err(NodeError::new("no_result", "the element has no result"));
    let mut failed: Vec<(usize, NodeError)> = Vec::new();
    let mut values = Vec::with_capacity(total);
    for (index, result) in items.results.into_iter().enumerate() {
        let result: ItemResult = result.unwrap_or_else(no_result);
        values.push(result.unwrap_or_else(|error| {
            let entry = json!({ "error": error.message, "code": error.code });
            failed.push((index, error));
            entry
        }));
    }
    let values = Value::Array(values);
    let mut set = Map::new();
    if let Some((name, _)) = &foreach.collect {
        set.insert(name.clone(), values.clone());
    }
    let result = match failed.first() {
        None => Ok(values),
        Some((index, first)) => {
            let many = failed.len();
            let message = format!("{many} of {total} elements failed; element {index}: {first}");
            // A missing permission is a problem of the graph, not of the element.
            let code = match first.code.as_str() {
                "not_permitted" => "not_permitted",
                _ => "items_failed",
            };
            Err(NodeError {
                hint: first.hint.clone(),
                ..NodeError::new(code, message)
            })
        }
    };
    let mut done = NodeResult::new(result);
    if total > 0 && items.cached == total {
        done.outcome = NodeOutcome::Cached;
    }
    done.set = set;
    done
}

/// Describes an item to the user.
pub(super) fn item_name(node: &str, index: usize, item: &Value) -> String {
    /// Number of characters to show.
    const MAX_CHARS: usize = 60;
    let text = display_text(item);
    let shown: String = text.chars().take(MAX_CHARS).collect();
    let rest = if shown.len() < text.len() { "…" } else { "" };
    format!("{node}, item {index}, {shown}{rest}")
}

/// Error of a foreach whose `over` is not a list.
pub(super) fn not_a_list(graph: &Graph, foreach: &Foreach, over: &Value) -> NodeError {
    let position = rye_items::Position::at_offset(&graph.text, foreach.over_at);
    let kind = type_name(over);
    let message = format!("`over` is {kind}, not a list (line {position})");
    NodeError::new("not_a_list", message)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
