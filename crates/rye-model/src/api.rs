//! The ways in which providers are spoken to.

use rye_engine::model::{ModelInfo, ModelRequest};
use rye_protocol::Part;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::Decoder;
use crate::{anthropic, chat, gemini, responses};

/// What is left for an answer where the window is full: let the server judge.
const LEAST_OUTPUT: u64 = 1_024;

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Api {
    /// Anthropic's Messages.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// `OpenAI`'s Responses.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// `OpenAI`'s chat completions, which many servers speak.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// Google's `generateContent`.
    #[serde(rename = "gemini")]
    Gemini,
}

/// How a model that thinks is told how much to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// By a word; it finds out itself how many tokens that takes.
    Effort,
    /// By a number of tokens.
    Budget,
}

/// How much a model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Effort {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// In tokens, for a model that may write so many.
    pub(crate) fn budget(self, max_output: u64) -> u64 {
        let wanted = match self {
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 24_576,
        };
        // Room for an answer must be left.
        wanted.min(max_output / 2)
    }
}

/// The model that a request is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// As it is called here, `provider/model`.
    pub name: String,
    /// As the provider calls it.
    pub id: String,
    /// What is known of it.
    pub info: ModelInfo,
    /// How it is told how much to think, if it does.
    pub thinking: Option<Thinking>,
    /// How much; else as the provider thinks best.
    pub effort: Option<Effort>,
}

impl Target {
    /// How much may be written: what was asked for, what the model can, and what its window
    /// has room for. Some servers refuse a request that may become too long.
    pub(crate) fn max_output(&self, request: &ModelRequest) -> u64 {
        let most = self.info.max_output;
        let most = request.max_output.map_or(most, |wanted| wanted.min(most));
        let room = self.info.context_window.saturating_sub(at_most(request));
        most.min(room.max(LEAST_OUTPUT))
    }
}

/// More tokens than a request is likely to have: three bytes for each, where most have
/// four. Images are not counted, since their bytes say nothing of their tokens.
fn at_most(request: &ModelRequest) -> u64 {
    size(request) as u64 / 3
}

/// About how many bytes were said.
fn size(request: &ModelRequest) -> usize {
    let size = |part: &Part| match part {
        Part::Text { text } | Part::Thinking { text, .. } | Part::ToolResult { text, .. } => {
            text.len()
        }
        Part::ToolCall { args, .. } => size_of(args),
        Part::Attachment { .. } | Part::Error { .. } => 0,
    };
    let said = request.messages.iter().flat_map(|it| &it.parts).map(size);
    request.system.len() + said.sum::<usize>()
}

/// About how long a value is as JSON.
fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(all) => all.iter().map(|it| size_of(it) + 1).sum::<usize>() + 2,
        Value::Object(all) => {
            let fields = all.iter().map(|(name, it)| name.len() + size_of(it) + 4);
            fields.sum::<usize>() + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Anthropic,
        Self::OpenAiResponses,
        Self::OpenAiChat,
        Self::Gemini,
    ];

    /// Its name in `models.yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiResponses => "openai-responses",
            Self::OpenAiChat => "openai-chat",
            Self::Gemini => "gemini",
        }
    }

    /// The body of a request. A pure function: the same history gives the same bytes.
    pub fn body(self, request: &ModelRequest, target: &Target) -> Vec<u8> {
        match self {
            Self::Anthropic => anthropic::body(request, target),
            Self::OpenAiResponses => responses::body(request, target),
            Self::OpenAiChat => chat::body(request, target),
            Self::Gemini => gemini::body(request, target),
        }
    }

    /// Where a request goes to, below the provider's address.
    pub(crate) fn path(self, target: &Target) -> String {
        match self {
            Self::Anthropic => "messages".to_owned(),
            Self::OpenAiResponses => "responses".to_owned(),
            Self::OpenAiChat => "chat/completions".to_owned(),
            Self::Gemini => format!("models/{}:streamGenerateContent?alt=sse", target.id),
        }
    }

    /// The header that a key goes into, and what comes before it there.
    pub(crate) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("x-api-key", ""),
            Self::OpenAiResponses | Self::OpenAiChat => ("authorization", "Bearer "),
            Self::Gemini => ("x-goog-api-key", ""),
        }
    }

    /// Headers that every request has.
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

/// JSON of what we put together ourselves, which can always be written. Room is made for
/// it beforehand: a long history would be copied again and again.
pub(crate) fn bytes(request: &ModelRequest, body: &impl serde::Serialize) -> Vec<u8> {
    let said = size(request) + 128 * request.messages.len();
    let mut bytes = Vec::with_capacity(said + said / 8 + 1024);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rye_protocol::{Message, Role};

    use super::*;

    #[test]
    fn an_answer_is_as_long_as_there_is_room_for() {
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
        for (bytes, wanted, expected) in [
            (30, None, 4_000),
            (30, Some(100), 100),
            (30, Some(9_000), 4_000),
            (24_000, None, 2_000),
            (60_000, None, LEAST_OUTPUT),
            (60_000, Some(7), 7),
        ] {
            let request = ModelRequest {
                system: String::new(),
                messages: vec![Arc::new(Message::text(Role::User, "x".repeat(bytes)))].into(),
                tools: Arc::default(),
                max_output: wanted,
                for_summary: false,
            };
            assert_eq!(target.max_output(&request), expected, "{bytes} {wanted:?}");
        }
    }
}
