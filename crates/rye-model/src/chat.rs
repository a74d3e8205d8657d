//! `OpenAI`'s Chat Completions API, also implemented by Ollama, vLLM, llama.cpp,
//! `OpenRouter` and many others.
//!
//! Reasoning is displayed and stored, but not sent back: these servers have no common
//! field for it.

mod stream;

use std::borrow::Cow;

use rye_engine::model::{ModelRequest, ToolSpec};
use serde::Serialize;
use serde_json::Value;

use crate::api::{self, Effort, Target};
use crate::convert::{self, AssistantBlock, Block, CallResult, Image, Recipient, Turn};

pub(crate) use stream::Stream;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: Cow<'a, str>,
    },
}

/// Plain text is sent as a string: not every server accepts a list.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Several(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: Url },
}

#[derive(Serialize)]
struct Url {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionCall<'a>,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Vec<u8> {
    let recipient = Recipient {
        model: &target.name,
        images: target.info.images,
    };
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        let content = &request.system;
        messages.push(Message::System { content });
    }
    for turn in convert::turns(&request.messages, recipient) {
        match turn {
            Turn::User { results, content } => user(results, content, &mut messages),
            Turn::Assistant(blocks) => messages.push(assistant(blocks)),
        }
    }
    api::bytes(
        request,
        &Body {
            model: &target.id,
            stream: true,
            stream_options: StreamOptions {
                include_usage: true,
            },
            max_tokens: target.max_output(request),
            reasoning_effort: target.thinking.and(target.effort).map(Effort::as_str),
            tools: request.tools.iter().map(tool).collect(),
            messages,
        },
    )
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    Tool {
        kind: "function",
        function: Function {
            name: &spec.name,
            description: &spec.description,
            parameters: &spec.parameters,
        },
    }
}

fn user<'a>(
    results: Vec<CallResult<'a>>,
    content: Vec<Block<'a>>,
    messages: &mut Vec<Message<'a>>,
) {
    // Results can only be text; the images of all results follow in one message.
    let mut pieces = Vec::new();
    for outcome in results {
        for it in outcome.images {
            let text = format!("[image returned by {}]", outcome.tool).into();
            pieces.push(ContentPart::Text { text });
            pieces.push(image(it));
        }
        messages.push(Message::Tool {
            tool_call_id: outcome.id,
            content: outcome.text,
        });
    }
    pieces.extend(content.into_iter().map(|block| match block {
        Block::Text(text) => ContentPart::Text { text },
        Block::Image(it) => image(it),
    }));
    let is_text = |piece: &ContentPart<'_>| matches!(piece, ContentPart::Text { .. });
    if pieces.iter().all(is_text) {
        let texts = pieces.into_iter().filter_map(|piece| match piece {
            ContentPart::Text { text } => Some(text),
            ContentPart::ImageUrl { .. } => None,
        });
        if let Some(text) = joined(texts) {
            let content = Content::Text(text);
            messages.push(Message::User { content });
        }
    } else {
        let content = Content::Several(pieces);
        messages.push(Message::User { content });
    }
}

fn assistant(blocks: Vec<AssistantBlock<'_>>) -> Message<'_> {
    let (mut texts, mut tool_calls) = (Vec::new(), Vec::new());
    for one in blocks {
        match one {
            AssistantBlock::Text(text) => texts.push(text),
            AssistantBlock::Thought { .. } => {}
            AssistantBlock::Call { id, tool, args } => tool_calls.push(Call {
                id,
                kind: "function",
                function: FunctionCall {
                    name: tool,
                    arguments: args.to_string(),
                },
            }),
        }
    }
    Message::Assistant {
        content: joined(texts.into_iter()),
        tool_calls,
    }
}

fn joined<'a>(mut texts: impl Iterator<Item = Cow<'a, str>>) -> Option<Cow<'a, str>> {
    let first = texts.next()?;
    Some(texts.fold(first, |all, next| format!("{all}\n\n{next}").into()))
}

fn image(image: Image<'_>) -> ContentPart<'_> {
    let url = format!("data:{};base64,{}", image.mime_type, image.data);
    ContentPart::ImageUrl {
        image_url: Url { url },
    }
}
