//! Errors for people and for programs.

use serde::{Deserialize, Serialize};

use crate::{CallId, GateId, PromptId, SessionId, ThreadId};

/// An error with a stable code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorInfo {
    /// Stable code for programs.
    pub code: ErrorCode,
    /// Description for people.
    pub message: String,
    /// Whether the thread can continue. If not, the whole session is stopped until it
    /// is opened again.
    pub recoverable: bool,
    /// The objects that the error is about.
    #[serde(default, skip_serializing_if = "ErrorIds::is_empty")]
    pub ids: ErrorIds,
}

/// The objects that an error is about, as far as they are known.
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
    pub prompt: Option<PromptId>,
    /// The tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateId>,
}

impl ErrorIds {
    /// Whether no object is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ErrorInfo {
    /// A recoverable error: it ends a prompt, not the thread.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            recoverable: true,
            ids: ErrorIds::default(),
        }
    }

    /// Marks the error as unrecoverable.
    #[must_use]
    pub fn fatal(self) -> Self {
        Self {
            recoverable: false,
            ..self
        }
    }
}

/// Stable error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The model call failed.
    Model,
    /// The context exceeds the model's window.
    ContextOverflow,
    /// The model does not exist.
    UnknownModel,
    /// The tool does not exist.
    UnknownTool,
    /// The arguments do not match the tool's schema.
    InvalidArguments,
    /// The tool reported a failure.
    ToolFailed,
    /// The tool panicked.
    ToolPanicked,
    /// The operation timed out.
    Timeout,
    /// The operation was interrupted; its effects are unknown.
    Interrupted,
    /// A person denied the request.
    Denied,
    /// The gate expired without a decision.
    GateExpired,
    /// The gate was withdrawn.
    GateWithdrawn,
    /// The gate already has a different decision.
    DecisionGateConflict,
    /// A required credential is missing.
    AuthRequired,
    /// A limit was reached.
    Limit,
    /// A budget of the user or organisation is used up.
    Quota,
    /// The model's result does not match the schema that the prompt requires.
    InvalidResult,
    /// The requested role or skill is invalid.
    BadRole,
    /// The store failed.
    Store,
    /// An internal error; a bug.
    Internal,
}
