//! The ways in which providers are spoken to.

use rye_engine::model::{ModelInfo, ModelRequest};
use serde::Deserialize;

use crate::answer::Decoder;
use crate::{anthropic, chat, gemini, responses};

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
    /// How much may be written.
    pub(crate) fn max_output(&self, request: &ModelRequest) -> u64 {
        let most = self.info.max_output;
        request.max_output.map_or(most, |wanted| wanted.min(most))
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

/// JSON of what we put together ourselves, which can always be written.
pub(crate) fn bytes(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}
