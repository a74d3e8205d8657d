//! The prompt queue of a thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EntryId, ErrorInfo, Limits, Millis, Part, PromptId, SessionId, ThreadId, TurnEnd};

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
    /// JSON Schema of the required result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    /// The prompts that are handled together as this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collected: Vec<CollectedPrompt>,
    /// The prompt that this one was merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collected_in: Option<PromptId>,
    /// Whether the engine generated the prompt to continue after a compaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compaction_continue: bool,
    /// Whether it only asks for a review of the changes, without a model call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub review: bool,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<PromptEnd>,
    /// When it was posted.
    pub created_at: Millis,
}

impl QueuedPrompt {
    /// A waiting prompt with default settings.
    pub fn new(
        session: SessionId,
        thread: ThreadId,
        content: impl Into<String>,
        now: Millis,
    ) -> Self {
        Self {
            id: PromptId::new(),
            session,
            thread,
            order: 0,
            content: content.into(),
            attachments: Vec::new(),
            author: None,
            reply_to: None,
            model: None,
            role: None,
            limits: Limits::default(),
            mode: QueueMode::default(),
            status: PromptStatus::Waiting,
            collect_until: None,
            result_schema: None,
            collected: Vec::new(),
            collected_in: None,
            compaction_continue: false,
            review: false,
            end: None,
            created_at: now,
        }
    }

    /// Whether the prompt waits and the host has not assigned a position yet.
    pub fn needs_position(&self) -> bool {
        self.status == PromptStatus::Waiting && self.order == 0
    }
}

/// How a prompt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptEnd {
    /// Why it ended.
    pub reason: TurnEnd,
    /// The model's last message with text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<EntryId>,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// When it ended.
    pub at: Millis,
}

/// A prompt as a part of a collected one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectedPrompt {
    /// Who sent the prompt.
    pub author: Option<Author>,
    /// The text of the prompt.
    pub content: String,
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
