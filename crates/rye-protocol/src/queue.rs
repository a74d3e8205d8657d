//! The prompt queue of a thread.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Limits, Millis, Part, PromptId, SessionId, ThreadId};

/// A prompt: waiting, running or finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuedPrompt {
    /// Unique id.
    pub id: PromptId,
    /// The session.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// Position in the queue; lower runs first. A newly posted prompt has 0 until the
    /// host assigns a position.
    pub order: u64,
    /// The text of the prompt.
    pub content: String,
    /// Files and images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Part>,
    /// Who sent the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The channel's address for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The model to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The role to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Limits for the prompt, including child sessions.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// What happens if the thread is busy.
    pub mode: QueueMode,
    /// Progress of the prompt.
    pub status: PromptStatus,
    /// End of the collection window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_until: Option<Millis>,
    /// Additional data of the host.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was posted.
    pub created_at: Millis,
}

impl QueuedPrompt {
    /// Whether the prompt waits and the host has not assigned a position yet.
    pub fn needs_position(&self) -> bool {
        self.status == PromptStatus::Waiting && self.order == 0
    }
}

/// The sender of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Author {
    /// Display name.
    pub name: String,
    /// The channel that the prompt came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

/// What happens to a prompt that arrives while the thread is busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// It runs after the current prompt.
    #[default]
    Followup,
    /// It replaces the running prompt.
    Steer,
    /// It waits for further prompts, which are then handled together.
    Collect,
}

/// Progress of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PromptStatus {
    /// In the queue, not started.
    Waiting,
    /// Its turn has started and not ended.
    Running,
    /// Its turn ended with an answer.
    Done,
    /// Ended without an answer.
    Failed,
    /// Aborted by a user.
    Aborted,
}

impl PromptStatus {
    /// Whether the prompt is finished.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Aborted)
    }
}
