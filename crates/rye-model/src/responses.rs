//! `OpenAI`'s Responses API.
//!
//! Nothing is stored at the provider (`store: false`), so encrypted reasoning items are
//! kept verbatim as the signature of a thinking part and sent back.

mod stream;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde_json::{Value, json};

use crate::api::Target;
use crate::convert::{self, AssistantBlock, Block, CallResult, Image, Turn};

pub(crate) use stream::Stream;

/// Minimum output limit that the API accepts.
const MIN_OUTPUT: u64 = 16;

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Value {
    let mut input = Vec::new();
    for turn in convert::turns(request, target) {
        match turn {
            Turn::User { results, content } => user(results, content, &mut input),
            Turn::Assistant(blocks) => input.extend(blocks.into_iter().filter_map(item)),
        }
    }
    let mut body = json!({
        "model": target.id,
        "stream": true,
        "store": false,
        "max_output_tokens": target.max_output(request).max(MIN_OUTPUT),
    });
    if !request.system.is_empty() {
        body["instructions"] = request.system.as_str().into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["input"] = input.into();
    // Models without reasoning reject these options.
    if target.thinking.is_some() {
        body["reasoning"] = match target.effort {
            Some(effort) => json!({ "effort": effort.as_str(), "summary": "auto" }),
            None => json!({ "summary": "auto" }),
        };
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": false,
    })
}

fn user(results: Vec<CallResult<'_>>, content: Vec<Block<'_>>, input: &mut Vec<Value>) {
    for outcome in results {
        let output = if outcome.images.is_empty() {
            json!(outcome.text)
        } else {
            let images = outcome.images.into_iter().map(image);
            [text(&outcome.text)].into_iter().chain(images).collect()
        };
        let call_id = outcome.id;
        input.push(json!({
            "type": "function_call_output",
            "call_id": call_id,
            "output": output,
        }));
    }
    if !content.is_empty() {
        let content = content.into_iter().map(|block| match block {
            Block::Text(it) => text(&it),
            Block::Image(it) => image(it),
        });
        let content: Value = content.collect();
        input.push(json!({ "type": "message", "role": "user", "content": content }));
    }
}

fn item(block: AssistantBlock<'_>) -> Option<Value> {
    match block {
        AssistantBlock::Text(text) => {
            let content = json!([{ "type": "output_text", "text": text }]);
            Some(json!({ "type": "message", "role": "assistant", "content": content }))
        }
        // A stored reasoning item.
        AssistantBlock::Thought { signature, .. } => {
            let item: Value = serde_json::from_str(signature?).ok()?;
            (item["type"] == "reasoning").then_some(item)
        }
        AssistantBlock::Call { id, tool, args } => Some(json!({
            "type": "function_call",
            "call_id": id,
            "name": tool,
            "arguments": args.to_string(),
        })),
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn image(image: Image<'_>) -> Value {
    json!({ "type": "input_image", "image_url": image.data_url() })
}
