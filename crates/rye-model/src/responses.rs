//! `OpenAI`'s Responses API.
//!
//! Nothing is stored at the provider (`store: false`), so encrypted reasoning items are
//! kept verbatim as the signature of a thinking part and sent back.

mod stream;

use std::borrow::Cow;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::{self, Target};
use crate::convert::{self, AssistantBlock, Block, CallResult, Image, Recipient, Turn};

pub(crate) use stream::Stream;

/// Minimum output limit that the API accepts.
const MIN_OUTPUT: u64 = 16;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
}

#[derive(Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    summary: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    TypedItem(TypedItem<'a>),
    /// A stored reasoning item, sent back verbatim.
    Reasoning(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TypedItem<'a> {
    Message {
        role: &'static str,
        content: Vec<Content<'a>>,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: Output<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Several(Vec<Content<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: String },
    OutputText { text: Cow<'a, str> },
}

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Vec<u8> {
    let recipient = Recipient {
        model: &target.name,
        images: target.info.images,
    };
    let mut input = Vec::new();
    for turn in convert::turns(&request.messages, recipient) {
        match turn {
            Turn::User { results, content } => user(results, content, &mut input),
            Turn::Assistant(blocks) => input.extend(blocks.into_iter().filter_map(item)),
        }
    }
    let thinks = target.thinking.is_some();
    api::bytes(
        request,
        &Body {
            model: &target.id,
            stream: true,
            store: false,
            max_output_tokens: target.max_output(request).max(MIN_OUTPUT),
            instructions: &request.system,
            tools: request.tools.iter().map(tool).collect(),
            input,
            reasoning: thinks.then(|| Reasoning {
                effort: target.effort.map(api::Effort::as_str),
                summary: "auto",
            }),
            // Models without reasoning reject this option.
            include: if thinks {
                &["reasoning.encrypted_content"]
            } else {
                &[]
            },
        },
    )
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    Tool {
        kind: "function",
        name: &spec.name,
        description: &spec.description,
        parameters: &spec.parameters,
        strict: false,
    }
}

fn user<'a>(results: Vec<CallResult<'a>>, content: Vec<Block<'a>>, input: &mut Vec<Item<'a>>) {
    for outcome in results {
        let text = outcome.text;
        let output = if outcome.images.is_empty() {
            Output::Text(text)
        } else {
            let images = outcome.images.into_iter().map(image);
            let text = Content::InputText { text };
            Output::Several([text].into_iter().chain(images).collect())
        };
        let call_id = outcome.id;
        input.push(Item::TypedItem(TypedItem::FunctionCallOutput {
            call_id,
            output,
        }));
    }
    let content: Vec<_> = content
        .into_iter()
        .map(|block| match block {
            Block::Text(text) => Content::InputText { text },
            Block::Image(it) => image(it),
        })
        .collect();
    if !content.is_empty() {
        let role = "user";
        input.push(Item::TypedItem(TypedItem::Message { role, content }));
    }
}

fn item(blocks: AssistantBlock<'_>) -> Option<Item<'_>> {
    match blocks {
        AssistantBlock::Text(text) => Some(Item::TypedItem(TypedItem::Message {
            role: "assistant",
            content: vec![Content::OutputText { text }],
        })),
        AssistantBlock::Thought { signature, .. } => {
            signature.and_then(reasoning).map(Item::Reasoning)
        }
        AssistantBlock::Call { id, tool, args } => Some(Item::TypedItem(TypedItem::FunctionCall {
            call_id: id,
            name: tool,
            arguments: args.to_string(),
        })),
    }
}

/// Parses a stored reasoning item.
fn reasoning(signature: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(rename = "type")]
        kind: Cow<'a, str>,
    }
    let kind: Kind<'_> = serde_json::from_str(signature).ok()?;
    let item = serde_json::from_str(signature).ok()?;
    (kind.kind == "reasoning").then_some(item)
}

fn image(image: Image<'_>) -> Content<'_> {
    Content::InputImage {
        image_url: format!("data:{};base64,{}", image.mime_type, image.data),
    }
}
