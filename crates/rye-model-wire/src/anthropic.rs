//! Anthropic's Messages.

use serde_json::{Value, json};

use crate::check::{self, Once, list, not_blank, text, want};
use crate::said::{Said, pieces};

pub(crate) fn stream(said: &Said) -> String {
    let mut all = Vec::new();
    let fresh = said.input - said.cached - said.cache_write;
    let mut event = |data: Value| all.push(data);
    event(json!({ "type": "message_start", "message": {
        "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF", "type": "message", "role": "assistant",
        "content": [], "model": "claude-test", "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": fresh, "cache_creation_input_tokens": said.cache_write,
            "cache_read_input_tokens": said.cached, "output_tokens": 1,
        },
    }}));
    event(json!({ "type": "ping" }));
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        event(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        for delta in deltas {
            event(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        event(json!({ "type": "content_block_stop", "index": index }));
        index += 1;
    };
    if let Some(thought) = &said.thought {
        if thought.text.is_empty() {
            block(
                json!({ "type": "redacted_thinking", "data": thought.seal }),
                vec![],
            );
        } else {
            let deltas = pieces(&thought.text)
                .map(|it| json!({ "type": "thinking_delta", "thinking": it }))
                .chain([json!({ "type": "signature_delta", "signature": thought.seal })]);
            let start = json!({ "type": "thinking", "thinking": "", "signature": "" });
            block(start, deltas.collect());
        }
    }
    if !said.text.is_empty() {
        let deltas = pieces(&said.text).map(|it| json!({ "type": "text_delta", "text": it }));
        block(json!({ "type": "text", "text": "" }), deltas.collect());
    }
    for call in &said.calls {
        let args = call.args.to_string();
        let deltas = [""].into_iter().chain(pieces(&args));
        let deltas = deltas.map(|it| json!({ "type": "input_json_delta", "partial_json": it }));
        let start = json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": {} });
        block(start, deltas.collect());
    }
    let reason = if said.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    let reason = said.stop.unwrap_or(reason);
    event(json!({
        "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null },
        "usage": { "output_tokens": said.output },
    }));
    event(json!({ "type": "message_stop" }));
    let named = all.iter().map(|data| (data["type"].as_str(), data.clone()));
    crate::events(named)
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    text(body, "model")?;
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    want(max_tokens > 0, || "`max_tokens` is needed".to_owned())?;
    let marks = body.to_string().matches("\"cache_control\"").count();
    want(marks <= 4, || format!("{marks} cache marks; at most 4"))?;
    let mut ids = Once::default();
    let (mut role, mut open, mut begins_with_thought) = ("assistant", Vec::new(), true);
    for message in list(body, "messages")? {
        let next = text(message, "role")?;
        want(next != role, || format!("two turns of {role} in a row"))?;
        role = next;
        let content = list(message, "content")?;
        want(!content.is_empty(), || format!("an empty turn of {role}"))?;
        if role == "user" {
            check::same(&open, &results(content)?)?;
        } else {
            begins_with_thought = kind(&content[0]).ends_with("thinking");
            let last = content.last().map(kind).unwrap_or_default();
            want(!last.ends_with("thinking"), || {
                "a turn ends in a thought".to_owned()
            })?;
        }
        for block in content {
            one(role, block)?;
        }
        let calls = content.iter().filter(|it| kind(it) == "tool_use");
        open = calls
            .map(|it| Ok(text(it, "id")?.to_owned()))
            .collect::<Result<_, String>>()?;
        for id in &open {
            check::plain(id, 64)?;
            ids.more(id)?;
        }
        if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
            want((1024..max_tokens).contains(&budget), || {
                format!("a budget of {budget}")
            })?;
            let is_last = std::ptr::eq(message, list(body, "messages")?.last().unwrap());
            let amid_calls = is_last && content.iter().any(|it| kind(it) == "tool_result");
            want(!amid_calls || begins_with_thought, || {
                "expected `thinking` or `redacted_thinking`, but found `tool_use`".to_owned()
            })?;
        }
    }
    want(role == "user", || {
        "the last turn is not the user's".to_owned()
    })
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap_or_default()
}

/// The calls that are answered, which must come before all else.
fn results(content: &[Value]) -> Result<Vec<String>, String> {
    let is_result = |block: &&Value| kind(block) == "tool_result";
    let first = content.iter().take_while(is_result);
    let all = content.iter().filter(is_result).count();
    let results: Result<Vec<_>, String> = first
        .map(|it| Ok(text(it, "tool_use_id")?.to_owned()))
        .collect();
    let results = results?;
    want(results.len() == all, || "results come first".to_owned())?;
    Ok(results)
}

fn one(role: &str, block: &Value) -> Result<(), String> {
    let misplaced = || format!("a turn of {role} has {block}");
    match (role, kind(block)) {
        (_, "text") => not_blank(block, "text"),
        ("user", "image") => {
            not_blank(&block["source"], "media_type")?;
            not_blank(&block["source"], "data")
        }
        ("assistant", "thinking") => not_blank(block, "signature"),
        ("assistant", "redacted_thinking") => not_blank(block, "data"),
        ("assistant", "tool_use") => {
            check::plain(text(block, "name")?, 128)?;
            want(block["input"].is_object(), || {
                format!("`input` is no object: {block}")
            })
        }
        ("user", "tool_result") => {
            let content = list(block, "content")?;
            content.iter().try_for_each(|it| one("user", it))
        }
        _ => Err(misplaced()),
    }
}
