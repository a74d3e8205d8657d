//! Anthropic's Messages API.
//!
//! Thinking blocks are sent back with their signature; redacted ones are stored with a
//! prefixed signature and sent back redacted. Cache breakpoints are set after the
//! stable prefix (tools, system prompt) and after the last two user turns, so that each
//! request hits the cache entries of the previous one.

mod stream;

use std::borrow::Cow;

use rye_engine::model::ModelRequest;
use serde::Serialize;
use serde_json::Value;

use crate::api::{self, Effort, Target, Thinking};
use crate::convert::{self, AssistantBlock, Block, Image, Recipient, Turn};

pub(crate) use stream::Stream;

/// Prefix of a stored signature that is a redacted thinking block; real ones are
/// base64.
const REDACTED_PREFIX: &str = "redacted:";
/// Minimum thinking budget that the API accepts.
const MIN_BUDGET: u64 = 1_024;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingOption>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingOption {
    Adaptive { display: &'static str },
    Enabled { budget_tokens: u64 },
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(flatten)]
    block: ContentBlock<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlock<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, Value>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        content: Vec<Content<'a>>,
    },
}

#[derive(Serialize)]
struct Source<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: &'a str,
    data: &'a str,
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

const CACHED: Option<CacheControl> = Some(CacheControl { kind: "ephemeral" });

impl<'a> From<ContentBlock<'a>> for Content<'a> {
    fn from(block: ContentBlock<'a>) -> Self {
        Self {
            block,
            cache_control: None,
        }
    }
}

pub(crate) fn body(request: &ModelRequest, target: &Target) -> Vec<u8> {
    let recipient = Recipient {
        model: &target.name,
        images: target.info.images,
    };
    let turns = convert::turns(&request.messages, recipient);
    let max_tokens = target.max_output(request);
    let (thinking, output_config) = thinking_option(target, max_tokens, &turns);
    let mut messages: Vec<_> = turns.into_iter().map(message).collect();
    let users = messages.iter_mut().rev().filter(|it| it.role == "user");
    for last in users.take(2).filter_map(|it| it.content.last_mut()) {
        last.cache_control = CACHED;
    }
    let system = (!request.system.trim().is_empty()).then(|| Content {
        block: ContentBlock::Text {
            text: request.system.as_str().into(),
        },
        cache_control: CACHED,
    });
    let mut tools: Vec<_> = request.tools.iter().map(tool).collect();
    if system.is_none()
        && let Some(last) = tools.last_mut()
    {
        last.cache_control = CACHED;
    }
    api::bytes(
        request,
        &Body {
            model: &target.id,
            max_tokens,
            stream: true,
            system: system.into_iter().collect(),
            tools,
            messages,
            thinking,
            output_config,
        },
    )
}

fn thinking_option(
    target: &Target,
    max_tokens: u64,
    turns: &[Turn<'_>],
) -> (Option<ThinkingOption>, Option<OutputConfig>) {
    match target.thinking {
        None => (None, None),
        Some(Thinking::Effort) => {
            let display = "summarized";
            let config = target.effort.map(|effort| OutputConfig {
                effort: effort.as_str(),
            });
            (Some(ThinkingOption::Adaptive { display }), config)
        }
        Some(Thinking::Budget) => {
            let budget_tokens = target.effort.unwrap_or(Effort::Medium).budget(max_tokens);
            let thinks = budget_tokens >= MIN_BUDGET && !answers_foreign_calls(turns);
            let thinking = thinks.then_some(ThinkingOption::Enabled { budget_tokens });
            (thinking, None)
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

fn tool(spec: &rye_engine::model::ToolSpec) -> Tool<'_> {
    Tool {
        name: &spec.name,
        description: &spec.description,
        input_schema: &spec.parameters,
        cache_control: None,
    }
}

fn message(turn: Turn<'_>) -> Message<'_> {
    match turn {
        Turn::Assistant(blocks) => Message {
            role: "assistant",
            content: blocks
                .into_iter()
                .filter_map(assistant_content)
                .map(Into::into)
                .collect(),
        },
        Turn::User { results, content } => {
            let results = results.into_iter().map(|outcome| {
                let text = ContentBlock::Text { text: outcome.text };
                let images = outcome.images.into_iter().map(image);
                ContentBlock::ToolResult {
                    tool_use_id: outcome.id,
                    is_error: outcome.failed,
                    content: [text].into_iter().chain(images).map(Into::into).collect(),
                }
            });
            let content = content.into_iter().map(|block| match block {
                Block::Text(text) => ContentBlock::Text { text },
                Block::Image(it) => image(it),
            });
            Message {
                role: "user",
                content: results.chain(content).map(Into::into).collect(),
            }
        }
    }
}

fn assistant_content(blocks: AssistantBlock<'_>) -> Option<ContentBlock<'_>> {
    match blocks {
        AssistantBlock::Text(text) => Some(ContentBlock::Text { text }),
        // Thinking without a signature is not accepted.
        AssistantBlock::Thought {
            signature: None, ..
        } => None,
        AssistantBlock::Thought {
            text,
            signature: Some(signature),
        } => Some(match signature.strip_prefix(REDACTED_PREFIX) {
            Some(data) => ContentBlock::RedactedThinking { data },
            None => ContentBlock::Thinking {
                thinking: text,
                signature,
            },
        }),
        AssistantBlock::Call { id, tool, args } => Some(ContentBlock::ToolUse {
            id,
            name: tool,
            input: args,
        }),
    }
}

fn image(image: Image<'_>) -> ContentBlock<'_> {
    ContentBlock::Image {
        source: Source {
            kind: "base64",
            media_type: image.mime_type,
            data: image.data,
        },
    }
}
