//! `OpenAI`'s Responses API.

use serde_json::{Value, json};

use super::completion::{Completion, deltas};
use super::validate::{self, UniqueIds, ensure, list, not_blank, text};

pub(crate) fn stream(completion: &Completion) -> String {
    let mut events: Vec<Value> = Vec::new();
    let response = |status: &str, usage: Value| {
        json!({
            "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "object": "response",
            "created_at": 1_741_476_542, "status": status, "error": null,
            "incomplete_details": null, "instructions": null, "model": "gpt-test",
            "output": [], "parallel_tool_calls": true, "store": false, "usage": usage,
        })
    };
    for kind in ["response.created", "response.in_progress"] {
        events.push(json!({ "type": kind, "response": response("in_progress", Value::Null) }));
    }
    let mut index = 0;
    let mut item = |start: Value, deltas: Vec<Value>, complete: Value| {
        let (added, done) = ("response.output_item.added", "response.output_item.done");
        events.push(json!({ "type": added, "output_index": index, "item": start }));
        for mut event in deltas {
            event["output_index"] = json!(index);
            events.push(event);
        }
        events.push(json!({ "type": done, "output_index": index, "item": complete }));
        index += 1;
    };
    if let Some(thinking) = &completion.thinking {
        let delta = |it: &str| {
            let kind = "response.reasoning_summary_text.delta";
            json!({ "type": kind, "item_id": "rs_1", "summary_index": 0, "delta": it })
        };
        let part = json!({
            "type": "response.reasoning_summary_part.added", "item_id": "rs_1",
            "summary_index": 0, "part": { "type": "summary_text", "text": "" },
        });
        let events = [part].into_iter().chain(deltas(&thinking.text).map(delta));
        let start = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
        let complete = json!({
            "type": "reasoning", "id": "rs_1",
            "summary": [{ "type": "summary_text", "text": thinking.text }],
            "encrypted_content": thinking.signature,
        });
        item(start, events.collect(), complete);
    }
    if !completion.text.is_empty() {
        let delta = |it: &str| {
            let kind = "response.output_text.delta";
            json!({ "type": kind, "item_id": "msg_1", "content_index": 0, "delta": it })
        };
        let message = |status: &str, content: Value| {
            json!({
                "type": "message", "id": "msg_1", "status": status, "role": "assistant",
                "content": content,
            })
        };
        let content =
            json!([{ "type": "output_text", "text": completion.text, "annotations": [] }]);
        let (start, complete) = (
            message("in_progress", json!([])),
            message("completed", content),
        );
        item(
            start,
            deltas(&completion.text).map(delta).collect(),
            complete,
        );
    }
    for call in &completion.calls {
        let args = call.args.to_string();
        let delta = |it: &str| {
            let kind = "response.function_call_arguments.delta";
            json!({ "type": kind, "item_id": "fc_1", "delta": it })
        };
        let function = |args: &str| {
            json!({
                "type": "function_call", "id": "fc_1", "call_id": call.id, "name": call.tool,
                "arguments": args,
            })
        };
        item(
            function(""),
            deltas(&args).map(delta).collect(),
            function(&args),
        );
    }
    let usage = usage(completion);
    events.push(match completion.stop_reason {
        None => json!({ "type": "response.completed", "response": response("completed", usage) }),
        Some(reason) => {
            let mut response = response("incomplete", usage);
            response["incomplete_details"] = json!({ "reason": reason });
            json!({ "type": "response.incomplete", "response": response })
        }
    });
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    let named = events
        .iter()
        .map(|data| (data["type"].as_str(), data.clone()));
    super::events(named)
}

fn usage(completion: &Completion) -> Value {
    json!({
        "input_tokens": completion.input_tokens,
        "input_tokens_details": { "cached_tokens": completion.cached_tokens },
        "output_tokens": completion.output_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": completion.input_tokens + completion.output_tokens,
    })
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    text(body, "model")?;
    ensure(body["store"] == json!(false), || {
        "`store` is not false".to_owned()
    })?;
    let input = list(body, "input")?;
    let mut ids = UniqueIds::default();
    let (mut open, mut answered) = (Vec::<String>::new(), Vec::<String>::new());
    let mut after_thinking = false;
    for item in input {
        let kind = text(item, "type")?;
        let may_follow_thinking = kind == "function_call" || kind == "reasoning";
        let may_follow_thinking =
            may_follow_thinking || kind == "message" && item["role"] == "assistant";
        ensure(!after_thinking || may_follow_thinking, || {
            "a reasoning item was provided without its required following item".to_owned()
        })?;
        after_thinking = kind == "reasoning";
        if kind != "function_call_output" && !answered.is_empty() {
            validate::same_ids(&open, &answered)?;
            (open, answered) = (Vec::new(), Vec::new());
        }
        match kind {
            "function_call" => {
                let id = text(item, "call_id")?;
                validate::identifier(id, 64)?;
                validate::identifier(text(item, "name")?, 64)?;
                ids.insert(id)?;
                let args = serde_json::from_str::<Value>(text(item, "arguments")?);
                let is_object = args.is_ok_and(|it| it.is_object());
                ensure(is_object, || format!("arguments are not an object: {item}"))?;
                open.push(id.to_owned());
            }
            "function_call_output" => answered.push(text(item, "call_id")?.to_owned()),
            "reasoning" => not_blank(item, "encrypted_content")?,
            "message" => {
                let is_user = item["role"] == "user";
                ensure(!is_user || open.is_empty(), || {
                    format!("no output found for {open:?}")
                })?;
                for content in list(item, "content")? {
                    message_content(is_user, content)?;
                }
            }
            other => return Err(format!("unknown item type {other}")),
        }
    }
    validate::same_ids(&open, &answered)?;
    let last = input.last().ok_or("`input` is empty")?;
    let from_client = last["role"] == "user" || last["type"] == "function_call_output";
    ensure(from_client, || {
        format!("the last item is not from the client: {last}")
    })
}

fn message_content(is_user: bool, content: &Value) -> Result<(), String> {
    match (is_user, text(content, "type")?) {
        (true, "input_text") | (false, "output_text") => not_blank(content, "text"),
        (true, "input_image") => not_blank(content, "image_url"),
        _ => Err(format!("unexpected content: {content}")),
    }
}
