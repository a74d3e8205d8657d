//! Google's `generateContent` API.
//!
//! The API attaches the signature of a thought to the part that follows it; Rye stores
//! it with the thought and moves it back when sending.

mod stream;

use std::borrow::Cow;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde::Serialize;
use serde_json::Value;

use crate::api::{self, Effort, Target, Thinking};
use crate::convert::{self, AssistantBlock, Block, Image, Recipient, Turn};

pub(crate) use stream::Stream;

/// Placeholder signature for calls made by another model, which the API would otherwise
/// reject.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Part<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<InlineData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    args: Cow<'a, Value>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Response<'a> {
    Output(Cow<'a, str>),
    Error(Cow<'a, str>),
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }

    fn image(image: Image<'a>) -> Self {
        Self {
            inline_data: Some(InlineData {
                mime_type: image.mime_type,
                data: image.data,
            }),
            ..Self::default()
        }
    }
}

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Vec<u8> {
    let recipient = Recipient {
        model: &target.name,
        images: target.info.images,
    };
    let wants_signatures = target.thinking == Some(Thinking::Effort);
    let contents = convert::turns(&request.messages, recipient)
        .into_iter()
        .map(|turn| content(turn, wants_signatures));
    let system = request.system.as_str();
    let declarations: Vec<_> = request.tools.iter().map(declaration).collect();
    let max_output = target.max_output(request);
    api::bytes(
        request,
        &Body {
            system_instruction: (!system.trim().is_empty()).then(|| Content {
                role: None,
                parts: vec![Part::text(system)],
            }),
            contents: contents.collect(),
            tools: if declarations.is_empty() {
                Vec::new()
            } else {
                vec![Tools {
                    function_declarations: declarations,
                }]
            },
            generation_config: GenerationConfig {
                max_output_tokens: max_output,
                thinking_config: target.thinking.map(|thinking| ThinkingConfig {
                    include_thoughts: true,
                    thinking_level: target
                        .effort
                        .filter(|_| thinking == Thinking::Effort)
                        .map(Effort::as_str),
                    thinking_budget: target
                        .effort
                        .filter(|_| thinking == Thinking::Budget)
                        .map(|effort| effort.budget(max_output)),
                }),
            },
        },
    )
}

fn declaration(spec: &ToolSpec) -> Declaration<'_> {
    Declaration {
        name: &spec.name,
        description: &spec.description,
        parameters_json_schema: &spec.parameters,
    }
}

fn content(turn: Turn<'_>, wants_signatures: bool) -> Content<'_> {
    match turn {
        Turn::User { results, content } => {
            let mut parts = Vec::new();
            let mut images = Vec::new();
            for outcome in results {
                images.extend(outcome.images.into_iter().map(Part::image));
                parts.push(Part {
                    function_response: Some(FunctionResponse {
                        id: outcome.id,
                        name: outcome.tool,
                        response: if outcome.failed {
                            Response::Error(outcome.text)
                        } else {
                            Response::Output(outcome.text)
                        },
                    }),
                    ..Part::default()
                });
            }
            parts.append(&mut images);
            parts.extend(content.into_iter().map(|block| match block {
                Block::Text(text) => Part::text(text),
                Block::Image(it) => Part::image(it),
            }));
            let role = Some("user");
            Content { role, parts }
        }
        Turn::Assistant(blocks) => Content {
            role: Some("model"),
            parts: model(blocks, wants_signatures),
        },
    }
}

fn model(blocks: Vec<AssistantBlock<'_>>, wants_signatures: bool) -> Vec<Part<'_>> {
    let (mut parts, mut pending, mut calls) = (Vec::new(), None, 0);
    for one in blocks {
        match one {
            AssistantBlock::Thought { signature, .. } => pending = signature.or(pending),
            AssistantBlock::Text(text) => parts.push(Part {
                thought_signature: pending.take(),
                ..Part::text(text)
            }),
            AssistantBlock::Call { id, tool, args } => {
                calls += 1;
                // Only the first of several parallel calls has one.
                let missing = (wants_signatures && calls == 1).then_some(NO_SIGNATURE);
                parts.push(Part {
                    function_call: Some(FunctionCall {
                        id,
                        name: tool,
                        args,
                    }),
                    thought_signature: pending.take().or(missing),
                    ..Part::default()
                });
            }
        }
    }
    parts
}
