//! `OpenAI`'s Chat Completions API.

use serde_json::{Value, json};

use super::completion::{Completion, deltas};
use super::validate::{self, UniqueIds, ensure, list, not_blank, text};

pub(crate) fn stream(completion: &Completion) -> String {
    let mut chunks = Vec::new();
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1_694_268_190,
            "model": "local-test", "system_fingerprint": "fp_44709d6fcb",
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
        })
    };
    let mut push = |delta: Value| chunks.push(chunk(delta, Value::Null));
    push(json!({ "role": "assistant", "content": "" }));
    if let Some(thinking) = &completion.thinking {
        for delta in deltas(&thinking.text) {
            push(json!({ "reasoning_content": delta }));
        }
    }
    for delta in deltas(&completion.text) {
        push(json!({ "content": delta }));
    }
    for (index, call) in completion.calls.iter().enumerate() {
        push(json!({ "tool_calls": [{
            "index": index, "id": call.id, "type": "function",
            "function": { "name": call.tool, "arguments": "" },
        }] }));
        for delta in deltas(&call.args.to_string()) {
            let function = json!({ "arguments": delta });
            push(json!({ "tool_calls": [{ "index": index, "function": function }] }));
        }
    }
    let reason = if completion.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let reason = completion.stop_reason.unwrap_or(reason);
    chunks.push(chunk(json!({}), json!(reason)));
    let mut usage = chunk(json!({}), Value::Null);
    usage["choices"] = json!([]);
    usage["usage"] = json!({
        "prompt_tokens": completion.input_tokens, "completion_tokens": completion.output_tokens,
        "total_tokens": completion.input_tokens + completion.output_tokens,
        "prompt_tokens_details": { "cached_tokens": completion.cached_tokens },
    });
    chunks.push(usage);
    let events = super::events(chunks.into_iter().map(|data| (None, data)));
    format!("{events}data: [DONE]\n\n")
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    text(body, "model")?;
    let messages = list(body, "messages")?;
    let mut ids = UniqueIds::default();
    let (mut open, mut answered) = (Vec::<String>::new(), Vec::<String>::new());
    for (number, message) in messages.iter().enumerate() {
        let role = text(message, "role")?;
        if role == "tool" {
            answered.push(text(message, "tool_call_id")?.to_owned());
            not_blank(message, "content")?;
            continue;
        }
        validate::same_ids(&open, &answered)?;
        (open, answered) = (Vec::new(), Vec::new());
        match role {
            "system" => ensure(number == 0, || {
                "a system message must come first".to_owned()
            })?,
            "user" => check_user_content(&message["content"])?,
            "assistant" => {
                let calls = message.get("tool_calls").and_then(Value::as_array);
                for call in calls.into_iter().flatten() {
                    let id = text(call, "id")?;
                    validate::identifier(id, 40)?;
                    ids.insert(id)?;
                    validate::identifier(text(&call["function"], "name")?, 64)?;
                    let args = text(&call["function"], "arguments")?;
                    let args = serde_json::from_str::<Value>(args);
                    let is_object = args.is_ok_and(|it| it.is_object());
                    ensure(is_object, || format!("arguments are not an object: {call}"))?;
                    open.push(id.to_owned());
                }
                if open.is_empty() {
                    not_blank(message, "content")?;
                }
            }
            other => return Err(format!("unknown role {other}")),
        }
    }
    validate::same_ids(&open, &answered)?;
    let last = messages.last().ok_or("`messages` is empty")?;
    let from_client = last["role"] == "user" || last["role"] == "tool";
    ensure(from_client, || {
        format!("the last message is not from the client: {last}")
    })
}

fn check_user_content(content: &Value) -> Result<(), String> {
    let Value::Array(parts) = content else {
        return not_blank(&json!({ "content": content }), "content");
    };
    ensure(!parts.is_empty(), || "empty message".to_owned())?;
    for part in parts {
        match text(part, "type")? {
            "text" => not_blank(part, "text")?,
            "image_url" => not_blank(&part["image_url"], "url")?,
            other => return Err(format!("unknown part type {other}")),
        }
    }
    Ok(())
}
