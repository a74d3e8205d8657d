//! What a script leaves open: what the last tool gave.

use std::sync::Arc;

use rye_protocol::{Message, Part};
use serde_json::Value;

const LAST: &str = "${last_tool_result}";

/// What the last tool of a history gave; nothing if there was none.
pub(crate) fn last_result(messages: &[Arc<Message>]) -> &str {
    let parts = messages.iter().rev().flat_map(|it| it.parts.iter().rev());
    let mut results = parts.filter_map(|part| match part {
        Part::ToolResult { text, .. } => Some(text.as_str()),
        _ => None,
    });
    results.next().unwrap_or_default()
}

/// A text with what it leaves open. What is filled in is not looked at again, and any
/// other `${…}` stays as it is: it may be a shell's.
pub(crate) fn text(text: &str, last: &str) -> String {
    text.replace(LAST, last)
}

/// The same in all texts of a value, but not in its names.
pub(crate) fn value(value: &Value, last: &str) -> Value {
    match value {
        Value::String(it) => Value::String(text(it, last)),
        Value::Array(all) => all.iter().map(|it| self::value(it, last)).collect(),
        Value::Object(all) => {
            let filled = all.iter().map(|(name, it)| (name, self::value(it, last)));
            filled.map(|(name, it)| (name.clone(), it)).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_at_any_depth_are_filled_in_and_others_are_left_alone() {
        let args =
            json!({ "a": ["<${last_tool_result}>", 1], "${last_tool_result}": "$HOME ${X}" });
        let filled = json!({ "a": ["<hi>", 1], "${last_tool_result}": "$HOME ${X}" });
        assert_eq!(value(&args, "hi"), filled);
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        assert_eq!(text("${last_tool_result}!", LAST), format!("{LAST}!"));
    }
}
