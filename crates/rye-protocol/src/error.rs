//! What went wrong, for people and for programs.

use serde::{Deserialize, Serialize};

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// A stable word.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// Whether the thread goes on.
    pub recoverable: bool,
}

impl ErrorInfo {
    /// One that ends a prompt, not the thread.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            recoverable: true,
        }
    }
}

/// A stable word for what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The role or skill that was named is no good.
    BadRole,
    /// What was written down cannot be read or written.
    Store,
    /// A bug of ours.
    Internal,
}
