//! Local servers that speak as model providers do, so that what talks to them can be
//! tested without a network and without a key.
//!
//! A [`Wire`] is a real HTTP server on the loopback. What it says is a [`Reply`]: written
//! in pieces of any size, slowly, cut off, or not at all. What it was asked is kept, and
//! what no provider would take is answered as they answer it, with status 400: see
//! [`Api::check`].
//!
//! ```
//! use rye_model_wire::{Api, Reply, Said, Wire};
//!
//! let said = Said::text("Grüße!");
//! let wire = Wire::of([Reply::stream(Api::OpenAiChat.stream(&said)).in_pieces_of(7)]);
//! assert!(wire.url().starts_with("http://127.0.0.1:"));
//! assert!(wire.requests().is_empty());
//! ```

#![expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a server for tests ends as a test does"
)]

mod anthropic;
mod chat;
mod check;
pub mod fixtures;
mod gemini;
mod reply;
mod responses;
mod said;
mod server;

pub use reply::Reply;
pub use said::{Call, Said, Thought};
pub use server::{Request, Wire};

use serde_json::Value;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// `OpenAI`'s Responses.
    OpenAiResponses,
    /// `OpenAI`'s chat completions.
    OpenAiChat,
    /// Google's `generateContent`.
    Gemini,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Anthropic,
        Self::OpenAiResponses,
        Self::OpenAiChat,
        Self::Gemini,
    ];

    /// The one that a path belongs to.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        Some(match path {
            _ if path.ends_with("/messages") => Self::Anthropic,
            _ if path.ends_with("/responses") => Self::OpenAiResponses,
            _ if path.ends_with("/chat/completions") => Self::OpenAiChat,
            _ if path.ends_with(":streamGenerateContent") => Self::Gemini,
            _ => return None,
        })
    }

    /// The stream of server-sent events that says something.
    pub fn stream(self, said: &Said) -> String {
        match self {
            Self::Anthropic => anthropic::stream(said),
            Self::OpenAiResponses => responses::stream(said),
            Self::OpenAiChat => chat::stream(said),
            Self::Gemini => gemini::stream(said),
        }
    }

    /// Whether the provider would take the body of a request, and in words why not.
    pub fn check(self, body: &Value) -> Result<(), String> {
        match self {
            Self::Anthropic => anthropic::check(body),
            Self::OpenAiResponses => responses::check(body),
            Self::OpenAiChat => chat::check(body),
            Self::Gemini => gemini::check(body),
        }
    }

    /// The body of an answer that is none.
    pub fn fault(self, status: u16, message: &str) -> Value {
        use serde_json::json;
        let word = match status {
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
                "error": { "type": word, "message": message },
                "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
            }),
            Self::OpenAiResponses | Self::OpenAiChat => json!({
                "error": { "message": message, "type": word, "param": null, "code": null },
            }),
            Self::Gemini => {
                let word = match status {
                    429 => "RESOURCE_EXHAUSTED",
                    503 => "UNAVAILABLE",
                    _ => "INVALID_ARGUMENT",
                };
                json!({ "error": { "code": status, "message": message, "status": word } })
            }
        }
    }
}

/// Server-sent events: a name, if it has one, and its data.
fn events<'a>(all: impl IntoIterator<Item = (Option<&'a str>, Value)>) -> String {
    let one = |(name, data): (Option<&str>, Value)| match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    all.into_iter().map(one).collect()
}
