//! Placeholders in scripts: `${last_tool_result}`.

use std::sync::Arc;

use rye_protocol::{Message, Part};
use serde_json::Value;

const PLACEHOLDER: &str = "${last_tool_result}";

/// The text of the last tool result in a history, or an empty string.
pub(crate) fn last_result(messages: &[Arc<Message>]) -> &str {
    let parts = messages.iter().rev().flat_map(|it| it.parts.iter().rev());
    let mut results = parts.filter_map(|part| match part {
        Part::ToolResult { text, .. } => Some(text.as_str()),
        _ => None,
    });
    results.next().unwrap_or_default()
}

/// Replaces the placeholder. The replacement is not expanded again, and other `${…}`
/// are left alone, since they may be meant for a shell.
pub(crate) fn expand(text: &str, last: &str) -> String {
    text.replace(PLACEHOLDER, last)
}

/// Replaces the placeholder in all strings of a value, but not in object keys.
pub(crate) fn expand_value(value: &Value, last: &str) -> Value {
    match value {
        Value::String(it) => Value::String(expand(it, last)),
        Value::Array(all) => all.iter().map(|it| expand_value(it, last)).collect(),
        Value::Object(all) => {
            let filled = all.iter().map(|(name, it)| (name, expand_value(it, last)));
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
    fn strings_at_any_depth_are_expanded() {
        let args =
            json!({ "a": ["<${last_tool_result}>", 1], "${last_tool_result}": "$HOME ${X}" });
        let filled = json!({ "a": ["<hi>", 1], "${last_tool_result}": "$HOME ${X}" });
        assert_eq!(expand_value(&args, "hi"), filled);
    }

    #[test]
    fn replacement_is_not_expanded_again() {
        assert_eq!(
            expand("${last_tool_result}!", PLACEHOLDER),
            format!("{PLACEHOLDER}!")
        );
    }
}
