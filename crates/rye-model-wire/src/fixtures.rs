//! Streams as providers send them, each with habits of its own. All say the same: a few
//! words, and two calls of `weather`, the first for São Paulo, the second for nowhere.

use crate::Api;

/// A name, the API, and the stream.
pub const ALL: [(&str, Api, &str); 6] = [
    (
        "anthropic",
        Api::Anthropic,
        include_str!("../fixtures/anthropic.sse"),
    ),
    (
        "responses",
        Api::OpenAiResponses,
        include_str!("../fixtures/responses.sse"),
    ),
    (
        "chat of DeepSeek",
        Api::OpenAiChat,
        include_str!("../fixtures/chat-deepseek.sse"),
    ),
    (
        "chat of Ollama, all calls with one number",
        Api::OpenAiChat,
        include_str!("../fixtures/chat-ollama.sse"),
    ),
    (
        "chat of a server that numbers nothing and does not say [DONE]",
        Api::OpenAiChat,
        include_str!("../fixtures/chat-unnumbered.sse"),
    ),
    (
        "gemini",
        Api::Gemini,
        include_str!("../fixtures/gemini.sse"),
    ),
];
