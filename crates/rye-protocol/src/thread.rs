//! Threads and turns.

use serde::{Deserialize, Serialize};

use crate::{
    CallId, CommandId, EffectClass, EntryId, GateId, Limits, Millis, PromptId, QueueMode,
    SessionId, ThreadId, Usage,
};

/// A thread: a conversation with its own history and queue. It runs one prompt at a
/// time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thread {
    /// Unique id.
    pub id: ThreadId,
    /// The session.
    pub session: SessionId,
    /// Identifies the source: `web:default`, `slack:…`, `task:…`.
    pub key: String,
    /// Whether it accepts and runs prompts.
    pub status: ThreadStatus,
    /// The last entry of the active path.
    pub leaf: Option<EntryId>,
    /// Hash of the leaf.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leaf_hash: String,
    /// Hash of the last seal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seal: String,
    /// Rolling hash of the thread's events.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub events_hash: String,
    /// Usage of the thread's prompts, including their tasks.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// What happens to a prompt that arrives while the thread is busy.
    pub mode: QueueMode,
    /// The model, if it differs from the session's.
    pub model: Option<String>,
    /// The role, if it differs from the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What the thread is about.
    pub summary: Option<String>,
    /// Estimated context size in tokens: the last reported value plus later additions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// The reason of the compaction in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionReason>,
    /// How to continue after the compaction in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
    /// Hash of the last recorded [`ModelContext`](crate::ModelContext).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model_context_hash: String,
    /// The turn in progress, with its complete state.
    pub turn: Option<Turn>,
    /// The last command that it carried out. A command to several threads stays in the
    /// inbox until all have carried it out, and no thread may do so twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_command: Option<CommandId>,
    /// Creation time.
    pub created_at: Millis,
    /// Time of the last change.
    pub updated_at: Millis,
}

impl Thread {
    /// A thread without history.
    pub fn new(session: SessionId, key: impl Into<String>, now: Millis) -> Self {
        Self {
            id: ThreadId::new(),
            session,
            key: key.into(),
            status: ThreadStatus::Active,
            leaf: None,
            leaf_hash: String::new(),
            seal: String::new(),
            events_hash: String::new(),
            usage: Usage::default(),
            mode: QueueMode::default(),
            model: None,
            role: None,
            summary: None,
            tokens: 0,
            compaction: None,
            continuation: None,
            model_context_hash: String::new(),
            turn: None,
            last_command: None,
            created_at: now,
            updated_at: now,
        }
    }
}

/// What the prompt that continues after a compaction inherits from the prompt that filled the
/// context.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Continuation {
    /// The model whose context is full.
    pub model: Option<String>,
    /// The role.
    pub role: Option<String>,
    /// What is left of the limits.
    pub limits: Limits,
}

/// Whether a thread accepts and runs prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ThreadStatus {
    /// Accepts and runs prompts.
    #[default]
    Active,
    /// Accepts prompts, but does not start them.
    Paused,
    /// Rejects prompts.
    Archived,
}

/// A turn in progress: one prompt until the model stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// The prompt.
    pub prompt: PromptId,
    /// The model that answers.
    pub model: String,
    /// Number of model calls in this turn.
    pub round: u32,
    /// The current step.
    pub phase: Phase,
    /// Minimum usage of the model call in progress. Stored before the call, so a crash
    /// does not make it free.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub reserved: Usage,
    /// Usage of the prompt so far, including child sessions.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub usage: Usage,
    /// Skips the context size check, because compaction has just run or failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_size_check: bool,
    /// Whether the model has already reported a context overflow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflowed: bool,
    /// Whether the model was already asked to correct its result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub correction_requested: bool,
    /// The model's last message with text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<EntryId>,
}

/// Why a history is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// The context size exceeds the compaction threshold.
    Threshold,
    /// The model reported a context overflow.
    Overflow,
    /// A user requested it.
    Requested,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

/// The current step of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Phase {
    /// The model is being called.
    Model,
    /// The tool calls of an assistant entry are being executed.
    Tools {
        /// The assistant entry.
        entry: EntryId,
        /// Its calls, in order.
        calls: Vec<Call>,
    },
}

/// A tool call in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Call {
    /// Id of the call.
    pub id: CallId,
    /// Name of the tool.
    pub tool: String,
    /// Progress of the call.
    pub state: CallState,
    /// Processes that it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessRef>,
    /// Effect class of this call, if it differs from the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
}

/// Progress of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CallState {
    /// Requested by the model, not started.
    Requested,
    /// Started; it may have had effects.
    Started,
    /// Waits for a decision.
    Blocked {
        /// The gate.
        gate: GateId,
    },
    /// Has a result.
    Ended,
}

/// A process: pid, start time and boot id in lillux's notation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ProcessRef(pub String);
