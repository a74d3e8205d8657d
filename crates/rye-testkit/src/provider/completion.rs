//! Provider-independent model output.

use serde_json::Value;

/// Output of a model, before it is encoded for a provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// Thinking that precedes the text.
    pub thinking: Option<Thinking>,
    /// Text of the answer.
    pub text: String,
    /// Tool calls, in parallel.
    pub calls: Vec<ToolCall>,
    /// Stop reason in the provider's spelling; `None` for a normal end.
    pub stop_reason: Option<&'static str>,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens read from a cache.
    pub cached_tokens: u64,
    /// Input tokens written to a cache; only Anthropic reports them.
    pub cache_write_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

/// Thinking of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thinking {
    /// Readable text; empty if the provider encrypts it.
    pub text: String,
    /// Signature or encrypted thinking that the provider expects back.
    pub signature: String,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Unique in a request.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// A JSON object.
    pub args: Value,
}

impl Completion {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            input_tokens: 12,
            output_tokens: 5,
            ..Self::default()
        }
    }

    /// A single tool call.
    pub fn call(id: &str, tool: &str, args: Value) -> Self {
        Self::default().with_call(id, tool, args)
    }

    /// Adds a tool call.
    #[must_use]
    pub fn with_call(mut self, id: &str, tool: &str, args: Value) -> Self {
        self.calls.push(ToolCall {
            id: id.to_owned(),
            tool: tool.to_owned(),
            args,
        });
        self
    }

    /// Sets the stop reason.
    #[must_use]
    pub fn with_stop_reason(mut self, reason: &'static str) -> Self {
        self.stop_reason = Some(reason);
        self
    }

    /// Adds thinking before the text.
    #[must_use]
    pub fn with_thinking(mut self, text: &str, signature: &str) -> Self {
        self.thinking = Some(Thinking {
            text: text.to_owned(),
            signature: signature.to_owned(),
        });
        self
    }
}

/// Splits a text into stream deltas: words with the space after them.
pub(crate) fn deltas(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}
