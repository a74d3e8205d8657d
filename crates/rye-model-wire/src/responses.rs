//! `OpenAI`'s Responses.

use serde_json::{Value, json};

use crate::check::{self, Once, list, not_blank, text, want};
use crate::said::{Said, pieces};

pub(crate) fn stream(said: &Said) -> String {
    let mut all: Vec<Value> = Vec::new();
    let response = |status: &str, usage: Value| {
        json!({
            "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "object": "response",
            "created_at": 1_741_476_542, "status": status, "error": null,
            "incomplete_details": null, "instructions": null, "model": "gpt-test",
            "output": [], "parallel_tool_calls": true, "store": false, "usage": usage,
        })
    };
    for kind in ["response.created", "response.in_progress"] {
        all.push(json!({ "type": kind, "response": response("in_progress", Value::Null) }));
    }
    let mut at = 0;
    let mut item = |start: Value, between: Vec<Value>, whole: Value| {
        let (added, done) = ("response.output_item.added", "response.output_item.done");
        all.push(json!({ "type": added, "output_index": at, "item": start }));
        for mut event in between {
            event["output_index"] = json!(at);
            all.push(event);
        }
        all.push(json!({ "type": done, "output_index": at, "item": whole }));
        at += 1;
    };
    if let Some(thought) = &said.thought {
        let delta = |it: &str| {
            let kind = "response.reasoning_summary_text.delta";
            json!({ "type": kind, "item_id": "rs_1", "summary_index": 0, "delta": it })
        };
        let part = json!({
            "type": "response.reasoning_summary_part.added", "item_id": "rs_1",
            "summary_index": 0, "part": { "type": "summary_text", "text": "" },
        });
        let between = [part].into_iter().chain(pieces(&thought.text).map(delta));
        let start = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
        let whole = json!({
            "type": "reasoning", "id": "rs_1",
            "summary": [{ "type": "summary_text", "text": thought.text }],
            "encrypted_content": thought.seal,
        });
        item(start, between.collect(), whole);
    }
    if !said.text.is_empty() {
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
        let content = json!([{ "type": "output_text", "text": said.text, "annotations": [] }]);
        let (start, whole) = (
            message("in_progress", json!([])),
            message("completed", content),
        );
        item(start, pieces(&said.text).map(delta).collect(), whole);
    }
    for call in &said.calls {
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
            pieces(&args).map(delta).collect(),
            function(&args),
        );
    }
    let usage = json!({
        "input_tokens": said.input, "input_tokens_details": { "cached_tokens": said.cached },
        "output_tokens": said.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": said.input + said.output,
    });
    all.push(match said.stop {
        None => json!({ "type": "response.completed", "response": response("completed", usage) }),
        Some(reason) => {
            let mut response = response("incomplete", usage);
            response["incomplete_details"] = json!({ "reason": reason });
            json!({ "type": "response.incomplete", "response": response })
        }
    });
    for (number, event) in all.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    let named = all.iter().map(|data| (data["type"].as_str(), data.clone()));
    crate::events(named)
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    text(body, "model")?;
    want(body["store"] == json!(false), || {
        "`store` is not false".to_owned()
    })?;
    let input = list(body, "input")?;
    let mut ids = Once::default();
    let (mut open, mut answered) = (Vec::<String>::new(), Vec::<String>::new());
    let mut after_thought = false;
    for item in input {
        let kind = text(item, "type")?;
        let leads_on = kind == "function_call" || kind == "reasoning";
        let leads_on = leads_on || kind == "message" && item["role"] == "assistant";
        want(!after_thought || leads_on, || {
            "a reasoning item was provided without its required following item".to_owned()
        })?;
        after_thought = kind == "reasoning";
        if kind != "function_call_output" && !answered.is_empty() {
            check::same(&open, &answered)?;
            (open, answered) = (Vec::new(), Vec::new());
        }
        match kind {
            "function_call" => {
                let id = text(item, "call_id")?;
                check::plain(id, 64)?;
                check::plain(text(item, "name")?, 64)?;
                ids.more(id)?;
                let args = serde_json::from_str::<Value>(text(item, "arguments")?);
                let is_object = args.is_ok_and(|it| it.is_object());
                want(is_object, || format!("arguments are no object: {item}"))?;
                open.push(id.to_owned());
            }
            "function_call_output" => answered.push(text(item, "call_id")?.to_owned()),
            "reasoning" => not_blank(item, "encrypted_content")?,
            "message" => {
                let is_user = item["role"] == "user";
                want(!is_user || open.is_empty(), || {
                    format!("no output found for {open:?}")
                })?;
                for content in list(item, "content")? {
                    message_content(is_user, content)?;
                }
            }
            other => return Err(format!("no item is a {other}")),
        }
    }
    check::same(&open, &answered)?;
    let last = input.last().ok_or("`input` is empty")?;
    let is_ours = last["role"] == "user" || last["type"] == "function_call_output";
    want(is_ours, || {
        format!("the last item is not the user's: {last}")
    })
}

fn message_content(is_user: bool, content: &Value) -> Result<(), String> {
    match (is_user, text(content, "type")?) {
        (true, "input_text") | (false, "output_text") => not_blank(content, "text"),
        (true, "input_image") => not_blank(content, "image_url"),
        _ => Err(format!("it does not belong here: {content}")),
    }
}
