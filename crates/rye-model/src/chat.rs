//! `OpenAI`'s Chat Completions API, also implemented by Ollama, vLLM, llama.cpp,
//! `OpenRouter` and many others.
//!
//! Reasoning is displayed and stored, but not sent back: these servers have no common
//! field for it.

mod stream;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde_json::{Value, json};

use crate::api::Target;
use crate::convert::{self, AssistantBlock, Block, CallResult, Image, Turn};

pub(crate) use stream::Stream;

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Value {
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    for turn in convert::turns(request, target) {
        match turn {
            Turn::User { results, content } => user(results, content, &mut messages),
            Turn::Assistant(blocks) => messages.push(assistant(blocks)),
        }
    }
    let mut body = json!({
        "model": target.id,
        "stream": true,
        "stream_options": { "include_usage": true },
        "max_tokens": target.max_output(request),
    });
    if let Some(effort) = target.thinking.and(target.effort) {
        body["reasoning_effort"] = effort.as_str().into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["messages"] = messages.into();
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
        },
    })
}

fn user(results: Vec<CallResult<'_>>, content: Vec<Block<'_>>, messages: &mut Vec<Value>) {
    // Results can only be text; the images of all results follow in one message.
    let mut pieces = Vec::new();
    for outcome in results {
        for it in outcome.images {
            pieces.push(text(&format!("[image returned by {}]", outcome.tool)));
            pieces.push(image(it));
        }
        messages.push(json!({
            "role": "tool",
            "tool_call_id": outcome.id,
            "content": outcome.text,
        }));
    }
    pieces.extend(content.into_iter().map(|block| match block {
        Block::Text(it) => text(&it),
        Block::Image(it) => image(it),
    }));
    if pieces.is_empty() {
        return;
    }
    // Plain text is sent as a string: not every server accepts a list.
    let texts: Option<Vec<_>> = pieces.iter().map(|piece| piece["text"].as_str()).collect();
    let content = match texts {
        Some(texts) => texts.join("\n\n").into(),
        None => Value::Array(pieces),
    };
    messages.push(json!({ "role": "user", "content": content }));
}

fn assistant(blocks: Vec<AssistantBlock<'_>>) -> Value {
    let (mut texts, mut tool_calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block {
            AssistantBlock::Text(text) => texts.push(text),
            AssistantBlock::Thought { .. } => {}
            AssistantBlock::Call { id, tool, args } => tool_calls.push(json!({
                "id": id,
                "type": "function",
                "function": { "name": tool, "arguments": args.to_string() },
            })),
        }
    }
    let content = (!texts.is_empty()).then(|| texts.join("\n\n"));
    let mut message = json!({ "role": "assistant", "content": content });
    if !tool_calls.is_empty() {
        message["tool_calls"] = tool_calls.into();
    }
    message
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image(image: Image<'_>) -> Value {
    json!({ "type": "image_url", "image_url": { "url": image.data_url() } })
}
