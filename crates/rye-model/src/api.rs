//! The provider APIs.

use rye_engine::model::{ModelInfo, ModelRequest};
use rye_protocol::Part;
use serde::{Deserialize, Serialize};

use crate::answer::Decoder;
use crate::{anthropic, chat, gemini, responses};

/// Minimum output limit if the context is full: the server decides.
const MIN_OUTPUT: u64 = 1_024;

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Api {
    /// Anthropic's Messages API.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// `OpenAI`'s Responses API.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// `OpenAI`'s Chat Completions API, which many servers implement.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// Google's `generateContent` API.
    #[serde(rename = "gemini")]
    Gemini,
}

/// How the amount of reasoning is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// As an effort level; the model chooses the number of tokens.
    Effort,
    /// As a token budget.
    Budget,
}

/// Amount of reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Little reasoning.
    Low,
    /// Moderate reasoning.
    Medium,
    /// Extensive reasoning.
    High,
}

impl Effort {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The token budget, given the output limit.
    pub(crate) fn budget(self, max_output: u64) -> u64 {
        let requested = match self {
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 24_576,
        };
        // Leaves room for the answer.
        requested.min(max_output / 2)
    }
}

/// The model that a request is sent to.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name in Rye: `provider/model`.
    pub name: String,
    /// Name at the provider.
    pub id: String,
    /// Context window, output limit and capabilities.
    pub info: ModelInfo,
    /// How reasoning is requested, if the model supports it.
    pub thinking: Option<Thinking>,
    /// Amount of reasoning; defaults to the provider's choice.
    pub effort: Option<Effort>,
}

impl Target {
    /// The output limit of a request: the smallest of the requested limit, the model's
    /// limit and the remaining context. Some servers reject requests that could exceed
    /// the window.
    pub(crate) fn max_output(&self, request: &ModelRequest) -> u64 {
        let limit = self.info.max_output;
        let limit = request
            .max_output
            .map_or(limit, |requested| requested.min(limit));
        let room = self
            .info
            .context_window
            .saturating_sub(max_input_tokens(request));
        limit.min(room.max(MIN_OUTPUT))
    }
}

/// Upper estimate of a request's tokens: three bytes per token, where four are typical.
/// Images are not counted, since their size says nothing about their tokens.
fn max_input_tokens(request: &ModelRequest) -> u64 {
    let size = |part: &Part| match part {
        Part::Text { text } | Part::Thinking { text, .. } | Part::ToolResult { text, .. } => {
            text.len()
        }
        Part::ToolCall { args, .. } => args.to_string().len(),
        Part::Attachment { .. } | Part::Error { .. } => 0,
    };
    let sizes = request.messages.iter().flat_map(|it| &it.parts).map(size);
    (request.system.len() + sizes.sum::<usize>()) as u64 / 3
}

impl Api {
    /// All APIs, in the order of error messages.
    pub const ALL: [Self; 4] = [
        Self::Anthropic,
        Self::OpenAiResponses,
        Self::OpenAiChat,
        Self::Gemini,
    ];

    /// The name in `models.yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiResponses => "openai-responses",
            Self::OpenAiChat => "openai-chat",
            Self::Gemini => "gemini",
        }
    }

    /// Builds a request body. Deterministic: the same history gives the same bytes.
    pub fn body(self, request: &ModelRequest, target: &Target) -> Vec<u8> {
        let body = match self {
            Self::Anthropic => anthropic::body(request, target),
            Self::OpenAiResponses => responses::body(request, target),
            Self::OpenAiChat => chat::body(request, target),
            Self::Gemini => gemini::body(request, target),
        };
        body.to_string().into_bytes()
    }

    /// The path of the endpoint below the provider's base URL.
    pub(crate) fn path(self, target: &Target) -> String {
        match self {
            Self::Anthropic => "messages".to_owned(),
            Self::OpenAiResponses => "responses".to_owned(),
            Self::OpenAiChat => "chat/completions".to_owned(),
            Self::Gemini => format!("models/{}:streamGenerateContent?alt=sse", target.id),
        }
    }

    /// The header for the key, and the prefix of its value.
    pub(crate) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("x-api-key", ""),
            Self::OpenAiResponses | Self::OpenAiChat => ("authorization", "Bearer "),
            Self::Gemini => ("x-goog-api-key", ""),
        }
    }

    /// Additional headers of every request.
    pub(crate) fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Anthropic => &[("anthropic-version", "2023-06-01")],
            _ => &[],
        }
    }

    pub(crate) fn decoder(self) -> Box<dyn Decoder> {
        match self {
            Self::Anthropic => Box::<anthropic::Stream>::default(),
            Self::OpenAiResponses => Box::<responses::Stream>::default(),
            Self::OpenAiChat => Box::<chat::Stream>::default(),
            Self::Gemini => Box::<gemini::Stream>::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rye_protocol::{Message, Role};

    use super::*;

    #[test]
    fn output_limit_respects_the_remaining_context() {
        let target = Target {
            name: "a/b".to_owned(),
            id: "b".to_owned(),
            info: ModelInfo {
                context_window: 10_000,
                max_output: 4_000,
                images: false,
            },
            thinking: None,
            effort: None,
        };
        for (bytes, requested, expected) in [
            (30, None, 4_000),
            (30, Some(100), 100),
            (30, Some(9_000), 4_000),
            (24_000, None, 2_000),
            (60_000, None, MIN_OUTPUT),
            (60_000, Some(7), 7),
        ] {
            let request = ModelRequest {
                system: String::new(),
                messages: vec![Arc::new(Message::text(Role::User, "x".repeat(bytes)))].into(),
                tools: Arc::default(),
                max_output: requested,
                for_summary: false,
                previous_compactions: 0,
                compacted_answers: 0,
            };
            assert_eq!(
                target.max_output(&request),
                expected,
                "{bytes} {requested:?}"
            );
        }
    }
}
