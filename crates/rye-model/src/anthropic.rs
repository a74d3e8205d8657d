//! Anthropic's Messages API.
//!
//! Thinking blocks are sent back with their signature; redacted ones are stored with a
//! prefixed signature and sent back redacted. Cache breakpoints are set after the
//! stable prefix (tools, system prompt) and after the last two user turns, so that each
//! request hits the cache entries of the previous one.

mod stream;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde_json::{Value, json};

use crate::api::{Effort, Target, Thinking};
use crate::convert::{self, AssistantBlock, Block, Image, Turn};

pub(crate) use stream::Stream;

/// Prefix of a stored signature that is a redacted thinking block; real ones are
/// base64.
const REDACTED_PREFIX: &str = "redacted:";
/// Minimum thinking budget that the API accepts.
const MIN_BUDGET: u64 = 1_024;

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Value {
    let turns = convert::turns(request, target);
    let max_tokens = target.max_output(request);
    let mut body = json!({ "model": target.id, "max_tokens": max_tokens, "stream": true });
    let mut tools: Vec<_> = request.tools.iter().map(tool).collect();
    if !request.system.trim().is_empty() {
        let mut system = text(&request.system);
        set_breakpoint(&mut system);
        body["system"] = json!([system]);
    } else if let Some(last) = tools.last_mut() {
        set_breakpoint(last);
    }
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    let thinking = thinking_option(target, max_tokens, &turns);
    let mut messages: Vec<_> = turns.into_iter().map(message).collect();
    let users = messages.iter_mut().rev().filter(|it| it["role"] == "user");
    for user in users.take(2) {
        if let Some(last) = user["content"].as_array_mut().and_then(|it| it.last_mut()) {
            set_breakpoint(last);
        }
    }
    body["messages"] = messages.into();
    if let Some(thinking) = thinking {
        body["thinking"] = thinking;
    }
    if let (Some(Thinking::Effort), Some(effort)) = (target.thinking, target.effort) {
        body["output_config"] = json!({ "effort": effort.as_str() });
    }
    body
}

/// Ends the prefix that the provider caches after this block.
fn set_breakpoint(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

fn thinking_option(target: &Target, max_tokens: u64, turns: &[Turn<'_>]) -> Option<Value> {
    match target.thinking? {
        Thinking::Effort => Some(json!({ "type": "adaptive", "display": "summarized" })),
        Thinking::Budget => {
            let budget = target.effort.unwrap_or(Effort::Medium).budget(max_tokens);
            let thinks = budget >= MIN_BUDGET && !answers_foreign_calls(turns);
            thinks.then(|| json!({ "type": "enabled", "budget_tokens": budget }))
        }
    }
}

/// Whether the last results answer a turn that does not start with this model's
/// thinking, as after a failover. The API rejects such a turn if thinking has a budget.
fn answers_foreign_calls(turns: &[Turn<'_>]) -> bool {
    let [.., Turn::Assistant(blocks), Turn::User { results, .. }] = turns else {
        return false;
    };
    let begins_with_thought = matches!(
        blocks.first(),
        Some(AssistantBlock::Thought {
            signature: Some(_),
            ..
        })
    );
    !results.is_empty() && !begins_with_thought
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "input_schema": spec.parameters,
    })
}

fn message(turn: Turn<'_>) -> Value {
    match turn {
        Turn::Assistant(blocks) => {
            let content: Vec<_> = blocks.into_iter().filter_map(assistant_content).collect();
            json!({ "role": "assistant", "content": content })
        }
        Turn::User { results, content } => {
            let results = results.into_iter().map(|outcome| {
                let images = outcome.images.into_iter().map(image);
                let content: Vec<_> = [text(&outcome.text)].into_iter().chain(images).collect();
                let mut result = json!({ "type": "tool_result", "tool_use_id": outcome.id });
                if outcome.failed {
                    result["is_error"] = true.into();
                }
                result["content"] = content.into();
                result
            });
            let content = content.into_iter().map(|block| match block {
                Block::Text(it) => text(&it),
                Block::Image(it) => image(it),
            });
            let content: Vec<_> = results.chain(content).collect();
            json!({ "role": "user", "content": content })
        }
    }
}

fn assistant_content(block: AssistantBlock<'_>) -> Option<Value> {
    Some(match block {
        AssistantBlock::Text(it) => text(&it),
        // Thinking without a signature is not accepted.
        AssistantBlock::Thought { text, signature } => {
            let signature = signature?;
            match signature.strip_prefix(REDACTED_PREFIX) {
                Some(data) => json!({ "type": "redacted_thinking", "data": data }),
                None => json!({ "type": "thinking", "thinking": text, "signature": signature }),
            }
        }
        AssistantBlock::Call { id, tool, args } => {
            json!({ "type": "tool_use", "id": id, "name": tool, "input": args })
        }
    })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image(image: Image<'_>) -> Value {
    let Image { mime_type, data } = image;
    json!({
        "type": "image",
        "source": { "type": "base64", "media_type": mime_type, "data": data },
    })
}
