//! Models: a request in, an answer out, its words told as they come.

use std::sync::Arc;
use std::time::Duration;

use rye_protocol::{CallId, Message, Part, Usage};
use serde_json::Value;

use crate::BoxFuture;

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// What holds before anything is said.
    pub system: String,
    /// What was said and done, in order. Every call has its result.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// What it may call.
    pub tools: Arc<[ToolSpec]>,
    /// How much it may write.
    pub max_output: Option<u64>,
    /// Whether it is to sum the history up rather than to go on with it.
    pub for_summary: bool,
}

/// A tool, as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// What a model says at last.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    /// All of it, in order.
    pub parts: Vec<Part>,
    /// Why it stopped, in its own words.
    pub stop_reason: Option<String>,
    /// What it used up.
    pub usage: Usage,
}

/// A bit of what a model says, as it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Words.
    Text(String),
    /// What it thinks.
    Thinking(String),
    /// More of the arguments of a call, as JSON that is not whole yet.
    ToolCall {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What is added; nothing when the call begins.
        args: String,
    },
}

/// Why a model has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It is too busy.
    #[error("the model is overloaded: {message}")]
    Overloaded {
        /// What it said.
        message: String,
        /// When to ask again.
        retry_after: Option<Duration>,
    },
    /// It was asked too often.
    #[error("the model was asked too often: {message}")]
    RateLimited {
        /// What it said.
        message: String,
        /// When to ask again.
        retry_after: Option<Duration>,
    },
    /// It was asked too much.
    #[error("the context is too long for the model: {0}")]
    ContextOverflow(String),
    /// It stopped in mid-word, or cannot be reached.
    #[error("the connection to the model broke: {0}")]
    Connection(String),
    /// There is no key for it, or not the right one.
    #[error("the model may not be asked: {0}")]
    Unauthorized(String),
    /// It does not understand, or may not answer.
    #[error("the model refused the request: {0}")]
    Refused(String),
    /// It answered, and said nothing.
    #[error("the model gave an empty answer: {0}")]
    Empty(String),
    /// It does not come to an end.
    #[error("the model's answer is too long: {0}")]
    TooLong(String),
    /// What is told in just these words, and nothing is done about: that of a record, when
    /// it is replayed.
    #[error("{}", .0.message)]
    Told(rye_protocol::ErrorInfo),
}

impl ModelError {
    /// Whether to ask again may help.
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. } | Self::RateLimited { .. } | Self::Connection(_)
        )
    }

    /// When to ask again, where it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after, .. } | Self::RateLimited { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }
}

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelInfo {
    /// Tokens it can read and write at once.
    pub context_window: u64,
    /// Tokens it can write at most.
    pub max_output: u64,
    /// Whether it sees images; else it is told that there was one.
    pub images: bool,
}

/// How often a model that is busy or out of reach is asked, and how long is waited
/// between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often it is asked, in all.
    pub max_attempts: u32,
    /// The first pause; each further one is twice as long.
    pub initial_delay: Duration,
    /// The longest pause. A model that wants a longer one is not waited for.
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

/// Who hears what a model says, as it comes.
pub type Deltas = Arc<dyn Fn(Delta) + Send + Sync>;

/// A model.
pub trait Model: Send + Sync + 'static {
    /// What is known of it.
    fn info(&self) -> ModelInfo;

    /// Asks it. Dropping the future ends the call.
    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>>;
}

/// Models by name.
pub trait Models: Send + Sync + 'static {
    /// The model of a name, or in words why there is none.
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String>;

    /// The name of the model that answers where nobody names one.
    fn default_name(&self) -> String;

    /// Who answers in place of a model that cannot, in order.
    fn failover(&self, name: &str) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// How often one is asked before the next.
    fn retry(&self) -> RetryPolicy {
        RetryPolicy::default()
    }
}
