//! Converts the result of `tools/call` to the result of a tool. No I/O.

use rye_executor::primitive::{CallFailure, CallOutcome};
use rye_protocol::json;
use serde_json::{Map, Value, json};

/// Converts the result of `tools/call` to the result of a tool.
///
/// The data is, in this order: the structured content; a single text that is a JSON object; the
/// joined texts, with all content blocks if some are not plain text. Images and audio stay as
/// the server sent them.
pub fn tool_result(answer: Value) -> CallOutcome {
    let Value::Object(mut answer) = answer else {
        return CallOutcome {
            failure: Some(CallFailure::new(
                "mcp_protocol",
                "the result is not an object",
            )),
            ..CallOutcome::default()
        };
    };
    let is_error = answer.get("isError").and_then(Value::as_bool) == Some(true);
    let contents = match answer.remove("content") {
        Some(Value::Array(contents)) => contents,
        _ => Vec::new(),
    };
    let text = joined_text(&contents);
    let structured = answer
        .remove("structuredContent")
        .filter(|value| !value.is_null());
    let failure = is_error.then(|| {
        let message = match text.trim() {
            "" => "the tool failed without a message",
            message => message,
        };
        CallFailure::new("tool_failed", message)
    });
    let data = match structured {
        Some(structured) => structured,
        None => single_object(&contents).unwrap_or_else(|| text_and_content(contents, &text)),
    };
    CallOutcome {
        data,
        failure,
        ..CallOutcome::default()
    }
}

/// The texts of all content blocks, joined by line breaks.
fn joined_text(contents: &[Value]) -> String {
    let texts = contents.iter().filter(|content| content["type"] == "text");
    let texts: Vec<_> = texts
        .filter_map(|content| content["text"].as_str())
        .collect();
    texts.join("\n")
}

/// The JSON object in a single text block.
fn single_object(contents: &[Value]) -> Option<Value> {
    let [content] = contents else {
        return None;
    };
    let text = content
        .get("text")?
        .as_str()
        .filter(|_| content["type"] == "text")?;
    let value: Value = json::parse(text).ok()?;
    value.is_object().then_some(value)
}

/// The joined text, with all content blocks unless they are plain text only.
fn text_and_content(contents: Vec<Value>, text: &str) -> Value {
    let mut data = Map::new();
    let is_text = |content: &Value| {
        let fields = content.as_object().map_or(0, Map::len);
        content["type"] == "text" && fields == 2
    };
    if !contents.is_empty() && contents.iter().all(is_text) {
        // The text contains everything.
        data.insert("text".into(), text.into());
        return Value::Object(data);
    }
    if !text.is_empty() {
        data.insert("text".into(), text.into());
    }
    data.insert("content".into(), Value::Array(contents));
    Value::Object(data)
}

/// The serialized result if it exceeds the limit.
pub(super) fn oversized(data: &Value, limit: usize) -> Option<Vec<u8>> {
    let text = serde_json::to_vec(data).ok()?;
    (text.len() > limit).then_some(text)
}

/// The beginning of an oversized result.
pub(super) fn truncate(data: &Value, limit: usize) -> Value {
    let whole;
    let text = if let Some(text) = data.get("text").and_then(Value::as_str) {
        text
    } else {
        whole = data.to_string();
        &whole
    };
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    json!({ "text": &text[..end.unwrap_or_default()], "truncated": true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_structured_form_becomes_the_data() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        for (answer, expected) in [
            (
                json!({"content": [text("{\"a\":1}")], "structuredContent": {"b": 2}}),
                json!({"b": 2}),
            ),
            (json!({"content": [text("{\"a\":1}")]}), json!({"a": 1})),
            (json!({"content": [text("[1]")]}), json!({"text": "[1]"})),
            (
                json!({"content": [text("one"), image, text("two")]}),
                json!({"text": "one\ntwo", "content": [text("one"), image, text("two")]}),
            ),
            (json!({"content": [image]}), json!({"content": [image]})),
            (json!({}), json!({"content": []})),
            (
                json!({"content": [], "structuredContent": null}),
                json!({"content": []}),
            ),
        ] {
            let done = tool_result(answer.clone());
            assert_eq!(done.data, expected, "{answer}");
            assert_eq!(done.failure, None);
        }
    }

    #[test]
    fn tool_error_becomes_a_failure_with_its_message() {
        let content = json!([{"type": "text", "text": "no such city"}]);
        let done = tool_result(json!({"content": content, "isError": true}));
        let failure = done.failure.unwrap();
        assert_eq!(
            (failure.code, failure.message.as_str()),
            ("tool_failed", "no such city")
        );
        let silent = tool_result(json!({"content": [], "isError": true}));
        assert_eq!(silent.failure.unwrap().code, "tool_failed");
        assert_eq!(tool_result(json!([])).failure.unwrap().code, "mcp_protocol");
    }

    #[test]
    fn truncation_keeps_characters_whole() {
        let data = json!({"text": "ääää", "content": []});
        assert!(oversized(&data, 10_000).is_none());
        assert!(oversized(&data, 10).is_some());
        assert_eq!(truncate(&data, 3), json!({"text": "ä", "truncated": true}));
        let data = json!({"rows": [1, 2, 3]});
        assert_eq!(
            truncate(&data, 6),
            json!({"text": "{\"rows", "truncated": true})
        );
    }
}
