//! `OpenAI`'s chat completions.

use serde_json::{Value, json};

use crate::check::{self, Once, list, not_blank, text, want};
use crate::said::{Said, pieces};

pub(crate) fn stream(said: &Said) -> String {
    let mut all = Vec::new();
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1_694_268_190,
            "model": "local-test", "system_fingerprint": "fp_44709d6fcb",
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
        })
    };
    let mut say = |delta: Value| all.push(chunk(delta, Value::Null));
    say(json!({ "role": "assistant", "content": "" }));
    if let Some(thought) = &said.thought {
        for piece in pieces(&thought.text) {
            say(json!({ "reasoning_content": piece }));
        }
    }
    for piece in pieces(&said.text) {
        say(json!({ "content": piece }));
    }
    for (index, call) in said.calls.iter().enumerate() {
        say(json!({ "tool_calls": [{
            "index": index, "id": call.id, "type": "function",
            "function": { "name": call.tool, "arguments": "" },
        }] }));
        for piece in pieces(&call.args.to_string()) {
            let function = json!({ "arguments": piece });
            say(json!({ "tool_calls": [{ "index": index, "function": function }] }));
        }
    }
    let reason = if said.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let reason = said.stop.unwrap_or(reason);
    all.push(chunk(json!({}), json!(reason)));
    let mut usage = chunk(json!({}), Value::Null);
    usage["choices"] = json!([]);
    usage["usage"] = json!({
        "prompt_tokens": said.input, "completion_tokens": said.output,
        "total_tokens": said.input + said.output,
        "prompt_tokens_details": { "cached_tokens": said.cached },
    });
    all.push(usage);
    let events = crate::events(all.into_iter().map(|data| (None, data)));
    format!("{events}data: [DONE]\n\n")
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    text(body, "model")?;
    let messages = list(body, "messages")?;
    let mut ids = Once::default();
    let (mut open, mut answered) = (Vec::<String>::new(), Vec::<String>::new());
    for (number, message) in messages.iter().enumerate() {
        let role = text(message, "role")?;
        if role == "tool" {
            answered.push(text(message, "tool_call_id")?.to_owned());
            not_blank(message, "content")?;
            continue;
        }
        check::same(&open, &answered)?;
        (open, answered) = (Vec::new(), Vec::new());
        match role {
            "system" => want(number == 0, || "the system speaks first".to_owned())?,
            "user" => user(&message["content"])?,
            "assistant" => {
                let calls = message.get("tool_calls").and_then(Value::as_array);
                for call in calls.into_iter().flatten() {
                    let id = text(call, "id")?;
                    check::plain(id, 40)?;
                    ids.more(id)?;
                    check::plain(text(&call["function"], "name")?, 64)?;
                    let args = text(&call["function"], "arguments")?;
                    let args = serde_json::from_str::<Value>(args);
                    let is_object = args.is_ok_and(|it| it.is_object());
                    want(is_object, || format!("arguments are no object: {call}"))?;
                    open.push(id.to_owned());
                }
                if open.is_empty() {
                    not_blank(message, "content")?;
                }
            }
            other => return Err(format!("nobody is a {other}")),
        }
    }
    check::same(&open, &answered)?;
    let last = messages.last().ok_or("`messages` is empty")?;
    let is_ours = last["role"] == "user" || last["role"] == "tool";
    want(is_ours, || {
        format!("the last message is not the user's: {last}")
    })
}

fn user(content: &Value) -> Result<(), String> {
    let Value::Array(all) = content else {
        return not_blank(&json!({ "content": content }), "content");
    };
    want(!all.is_empty(), || "an empty message".to_owned())?;
    for piece in all {
        match text(piece, "type")? {
            "text" => not_blank(piece, "text")?,
            "image_url" => not_blank(&piece["image_url"], "url")?,
            other => return Err(format!("nothing is a {other}")),
        }
    }
    Ok(())
}
