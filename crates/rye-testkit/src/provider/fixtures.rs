//! Recorded streams of providers with their peculiarities. All contain the same answer: some
//! text and two calls of `weather`, the first for São Paulo, the second without arguments.

use super::Api;

/// Name, API and server-sent events of each recording.
pub const ALL: [(&str, Api, &str); 6] = [
    (
        "anthropic",
        Api::Anthropic,
        include_str!("../../fixtures/anthropic.sse"),
    ),
    (
        "responses",
        Api::OpenAiResponses,
        include_str!("../../fixtures/responses.sse"),
    ),
    (
        "chat completions: DeepSeek",
        Api::OpenAiChat,
        include_str!("../../fixtures/chat-deepseek.sse"),
    ),
    (
        "chat completions: Ollama, all calls with the same index",
        Api::OpenAiChat,
        include_str!("../../fixtures/chat-ollama.sse"),
    ),
    (
        "chat completions: no indices and no [DONE]",
        Api::OpenAiChat,
        include_str!("../../fixtures/chat-unnumbered.sse"),
    ),
    (
        "gemini",
        Api::Gemini,
        include_str!("../../fixtures/gemini.sse"),
    ),
];
