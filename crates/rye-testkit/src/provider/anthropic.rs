//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::completion::{Completion, deltas};
use super::validate::{self, UniqueIds, ensure, list, not_blank, text};

pub(crate) fn stream(completion: &Completion) -> String {
    let mut events = Vec::new();
    let uncached =
        completion.input_tokens - completion.cached_tokens - completion.cache_write_tokens;
    let mut event = |data: Value| events.push(data);
    event(json!({ "type": "message_start", "message": {
        "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF", "type": "message", "role": "assistant",
        "content": [], "model": "claude-test", "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": uncached, "cache_creation_input_tokens": completion.cache_write_tokens,
            "cache_read_input_tokens": completion.cached_tokens, "output_tokens": 1,
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
    if let Some(thinking) = &completion.thinking {
        if thinking.text.is_empty() {
            block(
                json!({ "type": "redacted_thinking", "data": thinking.signature }),
                vec![],
            );
        } else {
            let deltas = deltas(&thinking.text)
                .map(|it| json!({ "type": "thinking_delta", "thinking": it }))
                .chain([json!({ "type": "signature_delta", "signature": thinking.signature })]);
            let start = json!({ "type": "thinking", "thinking": "", "signature": "" });
            block(start, deltas.collect());
        }
    }
    if !completion.text.is_empty() {
        let deltas = deltas(&completion.text).map(|it| json!({ "type": "text_delta", "text": it }));
        block(json!({ "type": "text", "text": "" }), deltas.collect());
    }
    for call in &completion.calls {
        let args = call.args.to_string();
        let deltas = [""].into_iter().chain(deltas(&args));
        let deltas = deltas.map(|it| json!({ "type": "input_json_delta", "partial_json": it }));
        let start = json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": {} });
        block(start, deltas.collect());
    }
    let reason = if completion.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    let reason = completion.stop_reason.unwrap_or(reason);
    event(json!({
        "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null },
        "usage": { "output_tokens": completion.output_tokens },
    }));
    event(json!({ "type": "message_stop" }));
    let named = events
        .iter()
        .map(|data| (data["type"].as_str(), data.clone()));
    super::events(named)
}

pub(crate) fn check(body: &Value) -> Result<(), String> {
    text(body, "model")?;
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    ensure(max_tokens > 0, || "`max_tokens` is needed".to_owned())?;
    let marks = body.to_string().matches("\"cache_control\"").count();
    ensure(marks <= 4, || {
        format!("{marks} cache breakpoints; at most 4 are allowed")
    })?;
    let mut ids = UniqueIds::default();
    let (mut role, mut open, mut starts_with_thinking) = ("assistant", Vec::new(), true);
    for message in list(body, "messages")? {
        let next = text(message, "role")?;
        ensure(next != role, || {
            format!("two consecutive turns of role {role}")
        })?;
        role = next;
        let content = list(message, "content")?;
        ensure(!content.is_empty(), || format!("empty turn of role {role}"))?;
        if role == "user" {
            validate::same_ids(&open, &results(content)?)?;
        } else {
            starts_with_thinking = kind(&content[0]).ends_with("thinking");
            let last = content.last().map(kind).unwrap_or_default();
            ensure(!last.ends_with("thinking"), || {
                "a turn ends with thinking".to_owned()
            })?;
        }
        for block in content {
            check_block(role, block)?;
        }
        let calls = content.iter().filter(|it| kind(it) == "tool_use");
        open = calls
            .map(|it| Ok(text(it, "id")?.to_owned()))
            .collect::<Result<_, String>>()?;
        for id in &open {
            validate::identifier(id, 64)?;
            ids.insert(id)?;
        }
        if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
            ensure((1024..max_tokens).contains(&budget), || {
                format!("invalid thinking budget {budget}")
            })?;
            let is_last = std::ptr::eq(message, list(body, "messages")?.last().unwrap());
            let answers_calls = is_last && content.iter().any(|it| kind(it) == "tool_result");
            ensure(!answers_calls || starts_with_thinking, || {
                "expected `thinking` or `redacted_thinking`, but found `tool_use`".to_owned()
            })?;
        }
    }
    ensure(role == "user", || {
        "the last turn does not have role user".to_owned()
    })
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap_or_default()
}

/// Ids of the answered calls. Results must precede all other blocks.
fn results(content: &[Value]) -> Result<Vec<String>, String> {
    let is_result = |block: &&Value| kind(block) == "tool_result";
    let first = content.iter().take_while(is_result);
    let all = content.iter().filter(is_result).count();
    let results: Result<Vec<_>, String> = first
        .map(|it| Ok(text(it, "tool_use_id")?.to_owned()))
        .collect();
    let results = results?;
    ensure(results.len() == all, || {
        "tool results must come first".to_owned()
    })?;
    Ok(results)
}

fn check_block(role: &str, block: &Value) -> Result<(), String> {
    let misplaced = || format!("role {role} cannot have {block}");
    match (role, kind(block)) {
        (_, "text") => not_blank(block, "text"),
        ("user", "image") => {
            not_blank(&block["source"], "media_type")?;
            not_blank(&block["source"], "data")
        }
        ("assistant", "thinking") => not_blank(block, "signature"),
        ("assistant", "redacted_thinking") => not_blank(block, "data"),
        ("assistant", "tool_use") => {
            validate::identifier(text(block, "name")?, 128)?;
            ensure(block["input"].is_object(), || {
                format!("`input` is not an object: {block}")
            })
        }
        ("user", "tool_result") => {
            let content = list(block, "content")?;
            content.iter().try_for_each(|it| check_block("user", it))
        }
        _ => Err(misplaced()),
    }
}
