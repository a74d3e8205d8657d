//! What waits for a thread.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Limits, Millis, Part, QueueItemId, SessionId, ThreadId};

/// A prompt that waits, runs, or has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueItem {
    /// Its id.
    pub id: QueueItemId,
    /// Whose it is.
    pub session: SessionId,
    /// Whose thread's.
    pub thread: ThreadId,
    /// Its place: the lower, the sooner. One that was posted has none, which is 0, until
    /// whoever runs the session gives it one.
    pub order: u64,
    /// What is asked.
    pub content: String,
    /// Files and images with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Part>,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Whom to answer, in the words of the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The model for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The role for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How much it may use up, children included.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// What becomes of it if the thread is busy.
    pub mode: QueueMode,
    /// How it stands.
    pub status: ItemStatus,
    /// When a collecting window closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_until: Option<Millis>,
    /// What the host wants to remember.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// When it was asked.
    pub created_at: Millis,
}

impl QueueItem {
    /// Whether it waits and has no place in the queue yet.
    pub fn is_unplaced(&self) -> bool {
        self.status == ItemStatus::Waiting && self.order == 0
    }
}

/// Who asks, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Author {
    /// A name.
    pub name: String,
    /// The channel it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

/// What becomes of a prompt that comes while a thread is busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// It waits for its turn.
    #[default]
    Followup,
    /// It takes the place of what runs.
    Steer,
    /// It waits for others, and they are asked together.
    Collect,
}

/// How a prompt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// It has not begun.
    Waiting,
    /// It has.
    Running,
    /// It was answered.
    Done,
    /// It ended without an answer.
    Failed,
    /// Somebody ended it.
    Aborted,
}

impl ItemStatus {
    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Aborted)
    }
}
