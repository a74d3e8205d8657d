//! Model interface: requests, answers, streamed deltas and errors.

use std::sync::Arc;
use std::time::Duration;

use rye_protocol::{CallId, IncompleteReason, Message, Part, Usage};
use serde_json::Value;

use crate::BoxFuture;

/// A request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: String,
    /// The history, in order. Every tool call has its result.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// Maximum number of output tokens.
    pub max_output: Option<u64>,
    /// Whether the model is asked for a summary of the history.
    pub for_summary: bool,
    /// Number of earlier compactions, if the model is asked for a summary.
    pub previous_compactions: usize,
    /// Number of answers that a summary in the history replaces.
    pub compacted_answers: usize,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Name that the model calls it by.
    pub name: String,
    /// What the tool does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// A complete answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    /// Text, thinking and tool calls, in order.
    pub parts: Vec<Part>,
    /// The provider's stop reason, verbatim.
    pub stop_reason: Option<String>,
    /// Why the answer is incomplete, if it is.
    pub incomplete: Option<IncompleteReason>,
    /// Tokens and cost.
    pub usage: Usage,
}

/// A streamed part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// A piece of the answer's text.
    Text(String),
    /// A piece of the model's reasoning, which is not part of the answer.
    Thinking(String),
    /// A piece of a tool call's arguments: incomplete JSON.
    ToolCall {
        /// Id of the call.
        call: CallId,
        /// Name of the tool.
        tool: String,
        /// The next piece of the arguments; empty when the call starts.
        args: String,
    },
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The provider is overloaded.
    #[error("the model is overloaded: {message}")]
    Overloaded {
        /// The provider's message.
        message: String,
        /// Delay that the provider asks for.
        retry_after: Option<Duration>,
    },
    /// The provider's rate limit is exceeded.
    #[error("rate limited by the provider: {message}")]
    RateLimited {
        /// The provider's message.
        message: String,
        /// Delay that the provider asks for.
        retry_after: Option<Duration>,
    },
    /// The request is longer than the context window.
    #[error("the context is too long for the model: {0}")]
    ContextOverflow(String),
    /// The connection failed or broke during the answer.
    #[error("the connection to the model broke: {0}")]
    Connection(String),
    /// The API key is missing or rejected.
    #[error("cannot access the model: {0}")]
    Unauthorized(String),
    /// The provider rejected the request.
    #[error("the provider rejected the request: {0}")]
    Refused(String),
    /// The provider's response is not a stream of events, such as a login page of a proxy. A
    /// retry would give the same response, but another model may work.
    #[error("the model cannot be reached: {0}")]
    NotAStream(String),
    /// The provider rejected an image in the request.
    #[error("the provider rejected an image in the request: {0}")]
    ImageRejected(String),
    /// The answer has no content.
    #[error("the model gave an empty answer: {0}")]
    Empty(String),
    /// The answer exceeds the size limit.
    #[error("the model's answer is too long: {0}")]
    TooLong(String),
    /// An error from a replayed recording, which is final and reported unchanged.
    #[error("{}", .0.message)]
    Recorded(rye_protocol::ErrorInfo),
}

impl ModelError {
    /// Whether the same call may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. } | Self::RateLimited { .. } | Self::Connection(_)
        )
    }

    /// Whether another model may succeed with the same request.
    pub fn allows_failover(&self) -> bool {
        self.is_retriable() || matches!(self, Self::NotAStream(_))
    }

    /// The delay that the provider asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after, .. } | Self::RateLimited { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }
}

/// Capabilities of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelInfo {
    /// Context window, in tokens.
    pub context_window: u64,
    /// Maximum output, in tokens.
    pub max_output: u64,
    /// Whether it accepts images; otherwise images are replaced by a note.
    pub images: bool,
}

/// A family of models with the same habits, which may need its own instructions and tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelFamily {
    /// Anthropic's models.
    Anthropic,
    /// `OpenAI`'s models.
    OpenAi,
    /// Google's models.
    Gemini,
    /// All others.
    #[default]
    Other,
}

impl ModelFamily {
    /// All families.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::Gemini, Self::Other];

    /// Name of the family in the ids of items.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Other => "other",
        }
    }
}

/// How often a failed model call is repeated, and with which delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Total number of attempts.
    pub max_attempts: u32,
    /// First delay; doubled for each further attempt.
    pub initial_delay: Duration,
    /// Longest delay. If the provider asks for more, the model is given up.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_delay: Duration::from_millis(500),
            max_delay: Duration::from_mins(1),
        }
    }
}

/// Receives streamed deltas.
pub type Deltas = Arc<dyn Fn(Delta) + Send + Sync>;

/// A language model.
pub trait Model: Send + Sync + 'static {
    /// Its capabilities.
    fn info(&self) -> ModelInfo;

    /// Calls the model. Dropping the future aborts the call.
    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>>;
}

/// Looks up models by name.
pub trait Models: Send + Sync + 'static {
    /// The model with this name, or a message that says why it is unavailable.
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String>;

    /// The name of the default model.
    fn default_name(&self) -> String;

    /// The family of a model.
    fn family(&self, name: &str) -> ModelFamily {
        let _ = name;
        ModelFamily::Other
    }

    /// The models to try if this one fails, in order.
    fn failover(&self, name: &str) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// How often a failed call is repeated before the next model is tried.
    fn retry(&self) -> RetryPolicy {
        RetryPolicy::default()
    }
}
