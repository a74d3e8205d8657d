//! Mock model providers for tests without a network or an API key.
//!
//! A [`MockProvider`] is a real HTTP server on the loopback interface. It sends [`Reply`]s in
//! chunks of any size, slowly, incompletely or not at all, and records the requests. A request
//! that the real provider would refuse gets status 400: see [`Api::check`].
//!
//! ```
//! use rye_testkit::provider::{Api, Completion, MockProvider, Reply};
//!
//! let events = Api::OpenAiChat.stream(&Completion::text("Grüße!"));
//! let provider = MockProvider::with_replies([Reply::stream(events).in_chunks_of(7)]);
//! assert!(provider.url().starts_with("http://127.0.0.1:"));
//! assert!(provider.requests().is_empty());
//! ```

mod anthropic;
mod chat;
mod completion;
pub mod fixtures;
mod gemini;
mod reply;
mod responses;
mod server;
mod validate;

pub use completion::{Completion, Thinking, ToolCall};
pub use reply::Reply;
pub use server::{MockProvider, Request};

use serde_json::Value;

/// API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Anthropic's Messages API.
    Anthropic,
    /// `OpenAI`'s Responses API.
    OpenAiResponses,
    /// `OpenAI`'s Chat Completions API.
    OpenAiChat,
    /// Google's `streamGenerateContent` API.
    Gemini,
}

impl Api {
    /// All APIs.
    pub const ALL: [Self; 4] = [
        Self::Anthropic,
        Self::OpenAiResponses,
        Self::OpenAiChat,
        Self::Gemini,
    ];

    /// The API that a request path belongs to.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        Some(match path {
            _ if path.ends_with("/messages") => Self::Anthropic,
            _ if path.ends_with("/responses") => Self::OpenAiResponses,
            _ if path.ends_with("/chat/completions") => Self::OpenAiChat,
            _ if path.ends_with(":streamGenerateContent") => Self::Gemini,
            _ => return None,
        })
    }

    /// Encodes a completion as server-sent events.
    pub fn stream(self, completion: &Completion) -> String {
        match self {
            Self::Anthropic => anthropic::stream(completion),
            Self::OpenAiResponses => responses::stream(completion),
            Self::OpenAiChat => chat::stream(completion),
            Self::Gemini => gemini::stream(completion),
        }
    }

    /// Checks that the provider would accept the body of a request.
    pub fn check(self, body: &Value) -> Result<(), String> {
        match self {
            Self::Anthropic => anthropic::check(body),
            Self::OpenAiResponses => responses::check(body),
            Self::OpenAiChat => chat::check(body),
            Self::Gemini => gemini::check(body),
        }
    }

    /// Body of an error response.
    pub fn error_body(self, status: u16, message: &str) -> Value {
        use serde_json::json;
        let code = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        match self {
            Self::Anthropic => json!({
                "type": "error",
                "error": { "type": code, "message": message },
                "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
            }),
            Self::OpenAiResponses | Self::OpenAiChat => json!({
                "error": { "message": message, "type": code, "param": null, "code": null },
            }),
            Self::Gemini => {
                let code = match status {
                    429 => "RESOURCE_EXHAUSTED",
                    503 => "UNAVAILABLE",
                    _ => "INVALID_ARGUMENT",
                };
                json!({ "error": { "code": status, "message": message, "status": code } })
            }
        }
    }
}

/// Encodes server-sent events from optional names and data.
fn events<'a>(events: impl IntoIterator<Item = (Option<&'a str>, Value)>) -> String {
    let encode = |(name, data): (Option<&str>, Value)| match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    events.into_iter().map(encode).collect()
}
