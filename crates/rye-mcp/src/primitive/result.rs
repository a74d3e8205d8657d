//! What a server's tool gave, as data. No I/O.

use rye_executor::primitive::{CallFailure, CallOutcome};
use serde_json::{Map, Value, json};

/// The result of `tools/call` as the result of a tool.
///
/// What is structured is the data; else a single text that is a JSON object; else the
/// texts, joined, and all contents where there are others than texts. Images and sounds stay as the server sent them.
pub fn mapped(answer: Value) -> CallOutcome {
    let Value::Object(mut answer) = answer else {
        return CallOutcome {
            failure: Some(CallFailure::new("mcp_protocol", "the result is no object")),
            ..CallOutcome::default()
        };
    };
    let is_error = answer.get("isError").and_then(Value::as_bool) == Some(true);
    let contents = match answer.remove("content") {
        Some(Value::Array(contents)) => contents,
        _ => Vec::new(),
    };
    let text = joined(&contents);
    let structured = answer
        .remove("structuredContent")
        .filter(|value| !value.is_null());
    let failure = is_error.then(|| {
        let said = match text.trim() {
            "" => "it said that it failed, and not why",
            said => said,
        };
        CallFailure::new("tool_failed", said)
    });
    let data = match structured {
        Some(structured) => structured,
        None => object(&contents).unwrap_or_else(|| plain(contents, &text)),
    };
    CallOutcome {
        data,
        failure,
        ..CallOutcome::default()
    }
}

/// The texts of all contents, one after another.
fn joined(contents: &[Value]) -> String {
    let texts = contents.iter().filter(|content| content["type"] == "text");
    let texts: Vec<_> = texts
        .filter_map(|content| content["text"].as_str())
        .collect();
    texts.join("\n")
}

/// A single text that is a JSON object.
fn object(contents: &[Value]) -> Option<Value> {
    let [content] = contents else {
        return None;
    };
    let text = content
        .get("text")?
        .as_str()
        .filter(|_| content["type"] == "text")?;
    let value: Value = serde_json::from_str(text).ok()?;
    value.is_object().then_some(value)
}

fn plain(contents: Vec<Value>, text: &str) -> Value {
    let mut data = Map::new();
    let is_text = |content: &Value| {
        let fields = content.as_object().map_or(0, Map::len);
        content["type"] == "text" && fields == 2
    };
    if !contents.is_empty() && contents.iter().all(is_text) {
        // Said once.
        data.insert("text".into(), text.into());
        return Value::Object(data);
    }
    if !text.is_empty() {
        data.insert("text".into(), text.into());
    }
    data.insert("content".into(), Value::Array(contents));
    Value::Object(data)
}

/// The whole of a result that is longer than a limit.
pub(super) fn too_long(data: &Value, limit: usize) -> Option<Vec<u8>> {
    let text = serde_json::to_vec(data).ok()?;
    (text.len() > limit).then_some(text)
}

/// The beginning of a result that is too long.
pub(super) fn cut(data: &Value, limit: usize) -> Value {
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
    fn the_most_structured_form_is_the_data() {
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
            let done = mapped(answer.clone());
            assert_eq!(done.data, expected, "{answer}");
            assert_eq!(done.failure, None);
        }
    }

    #[test]
    fn an_error_of_the_tool_is_a_failure_with_its_words() {
        let content = json!([{"type": "text", "text": "no such city"}]);
        let done = mapped(json!({"content": content, "isError": true}));
        let failure = done.failure.unwrap();
        assert_eq!(
            (failure.code, failure.message.as_str()),
            ("tool_failed", "no such city")
        );
        let silent = mapped(json!({"content": [], "isError": true}));
        assert!(silent.failure.unwrap().message.contains("not why"));
        assert_eq!(mapped(json!([])).failure.unwrap().code, "mcp_protocol");
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let data = json!({"text": "ääää", "content": []});
        assert!(too_long(&data, 10_000).is_none());
        assert!(too_long(&data, 10).is_some());
        assert_eq!(cut(&data, 3), json!({"text": "ä", "truncated": true}));
        let data = json!({"rows": [1, 2, 3]});
        assert_eq!(cut(&data, 6), json!({"text": "{\"rows", "truncated": true}));
    }
}
