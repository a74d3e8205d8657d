//! What comes of all items together.

use serde_json::{Map, Value, json};

use super::{Given, Items};
use crate::event::{NodeError, NodeOutcome};
use crate::model::{Foreach, Graph};
use crate::walk::{Done, words};

/// The results of all items; where some failed, the others are kept all the same.
pub(super) fn collected(foreach: &Foreach, items: Items<'_>) -> Done {
    let total = items.results.len();
    let lost = || Err(NodeError::new("lost", "nothing was heard of it"));
    let mut failed: Vec<(usize, NodeError)> = Vec::new();
    let mut values = Vec::with_capacity(total);
    for (index, given) in items.results.into_iter().enumerate() {
        let given: Given = given.unwrap_or_else(lost);
        values.push(given.unwrap_or_else(|error| {
            let told = json!({ "error": error.message, "code": error.code });
            failed.push((index, error));
            told
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
            let message = format!("{many} of {total} items failed; item {index}: {first}");
            // One that may not be called at all is not the item's failure.
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
    let mut done = Done::of(result, items.effect);
    if total > 0 && items.cached == total {
        done.outcome = NodeOutcome::Cached;
    }
    done.set = set;
    done
}

/// An item as a person knows it again.
pub(super) fn name(node: &str, index: usize, item: &Value) -> String {
    /// As much of it as fits a line.
    const SHOWN: usize = 60;
    let text = words(item);
    let shown: String = text.chars().take(SHOWN).collect();
    let rest = if shown.len() < text.len() { "…" } else { "" };
    format!("{node}, item {index}, {shown}{rest}")
}

/// Why there are no items.
pub(super) fn no_list(graph: &Graph, foreach: &Foreach, over: &Value) -> NodeError {
    let place = rye_items::Position::at_offset(&graph.text, foreach.over_at);
    let kind = kind(over);
    let message = format!("`over` gives {kind}, not a list (line {place})");
    NodeError::new("not_a_list", message)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
