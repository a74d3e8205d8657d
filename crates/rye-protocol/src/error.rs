//! What went wrong, for people and for programs.

use serde::{Deserialize, Serialize};

use crate::{CallId, GateId, QueueItemId, SessionId, ThreadId};

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorInfo {
    /// A stable word.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// Whether the thread goes on. Where it does not, neither does its session, until
    /// somebody opens it again.
    pub recoverable: bool,
    /// Where.
    #[serde(default, skip_serializing_if = "ErrorIds::is_empty")]
    pub ids: ErrorIds,
}

/// Where something went wrong, as far as it was in any of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorIds {
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<QueueItemId>,
    /// The call of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The gate at which it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateId>,
}

impl ErrorIds {
    /// Nowhere in particular.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ErrorInfo {
    /// One that ends a prompt, not the thread.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            recoverable: true,
            ids: ErrorIds::default(),
        }
    }

    /// One that ends more than a prompt.
    #[must_use]
    pub fn fatal(self) -> Self {
        Self {
            recoverable: false,
            ..self
        }
    }
}

/// A stable word for what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The model could not be called.
    Model,
    /// Its context is too long.
    ContextOverflow,
    /// There is no such model.
    UnknownModel,
    /// There is no such tool.
    UnknownTool,
    /// The arguments do not fit the tool.
    InvalidArguments,
    /// The tool said that it failed.
    ToolFailed,
    /// The tool broke down.
    ToolPanicked,
    /// It took too long.
    Timeout,
    /// It was cut off; whether it had its effect is not known.
    Interrupted,
    /// The person said no.
    Denied,
    /// Nobody decided in time.
    GateExpired,
    /// The question is gone.
    GateWithdrawn,
    /// Another decision was made before.
    DecisionGateConflict,
    /// It needs a key or a password that nobody gave.
    AuthRequired,
    /// A limit was reached.
    Limit,
    /// The model gave no result that fits what the prompt wants.
    InvalidResult,
    /// The role or skill that was named is no good.
    BadRole,
    /// What was written down cannot be read or written.
    Store,
    /// A bug of ours.
    Internal,
}
