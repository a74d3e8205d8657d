//! Google's `generateContent` API.
//!
//! The API attaches the signature of a thought to the part that follows it; Rye stores
//! it with the thought and moves it back when sending.

mod stream;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde_json::{Value, json};

use crate::api::{Target, Thinking};
use crate::convert::{self, AssistantBlock, Block, Image, Turn};

pub(crate) use stream::Stream;

/// Placeholder signature for calls made by another model, which the API would otherwise
/// reject.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Value {
    let wants_signatures = target.thinking == Some(Thinking::Effort);
    let mut body = json!({});
    if !request.system.trim().is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": request.system }] });
    }
    let turns = convert::turns(request, target).into_iter();
    body["contents"] = turns.map(|turn| content(turn, wants_signatures)).collect();
    if !request.tools.is_empty() {
        let declarations: Value = request.tools.iter().map(declaration).collect();
        body["tools"] = json!([{ "functionDeclarations": declarations }]);
    }
    let max_output = target.max_output(request);
    let mut config = json!({ "maxOutputTokens": max_output });
    if let Some(thinking) = target.thinking {
        let mut options = json!({ "includeThoughts": true });
        match (thinking, target.effort) {
            (_, None) => {}
            (Thinking::Effort, Some(effort)) => options["thinkingLevel"] = effort.as_str().into(),
            (Thinking::Budget, Some(effort)) => {
                options["thinkingBudget"] = effort.budget(max_output).into();
            }
        }
        config["thinkingConfig"] = options;
    }
    body["generationConfig"] = config;
    body
}

fn declaration(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "parametersJsonSchema": spec.parameters,
    })
}

fn content(turn: Turn<'_>, wants_signatures: bool) -> Value {
    match turn {
        Turn::User { results, content } => {
            let (mut parts, mut images) = (Vec::new(), Vec::new());
            for outcome in results {
                images.extend(outcome.images.into_iter().map(image));
                let key = if outcome.failed { "error" } else { "output" };
                parts.push(json!({
                    "functionResponse": {
                        "id": outcome.id,
                        "name": outcome.tool,
                        "response": { key: outcome.text },
                    },
                }));
            }
            parts.append(&mut images);
            parts.extend(content.into_iter().map(|block| match block {
                Block::Text(text) => json!({ "text": text }),
                Block::Image(it) => image(it),
            }));
            json!({ "role": "user", "parts": parts })
        }
        Turn::Assistant(blocks) => {
            json!({ "role": "model", "parts": model(blocks, wants_signatures) })
        }
    }
}

fn model(blocks: Vec<AssistantBlock<'_>>, wants_signatures: bool) -> Vec<Value> {
    let (mut parts, mut pending, mut calls) = (Vec::new(), None, 0);
    for block in blocks {
        let (mut part, otherwise) = match block {
            AssistantBlock::Thought { signature, .. } => {
                pending = signature.or(pending);
                continue;
            }
            AssistantBlock::Text(text) => (json!({ "text": text }), None),
            AssistantBlock::Call { id, tool, args } => {
                calls += 1;
                let call = json!({ "functionCall": { "id": id, "name": tool, "args": args } });
                // Only the first of several parallel calls has one.
                (
                    call,
                    (wants_signatures && calls == 1).then_some(NO_SIGNATURE),
                )
            }
        };
        if let Some(signature) = pending.take().or(otherwise) {
            part["thoughtSignature"] = signature.into();
        }
        parts.push(part);
    }
    parts
}

fn image(image: Image<'_>) -> Value {
    json!({ "inlineData": { "mimeType": image.mime_type, "data": image.data } })
}
