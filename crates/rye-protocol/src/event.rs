//! Events: what happened in a session, for subscribers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::PermissionMode;
use crate::{
    CallId, EntryId, ErrorInfo, FileChange, Gate, GateId, Millis, PromptId, Resolution,
    ResultStatus, Seal, SessionId, ThreadId, Usage,
};

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Sequence number within the session, from 1, without gaps. Live-only events have
    /// none.
    pub sequence: Option<u64>,
    /// The session.
    pub session: SessionId,
    /// The thread, unless the event concerns the whole session.
    pub thread: Option<ThreadId>,
    /// When it happened.
    pub at: Millis,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// A model message starts; live deltas follow.
    MessageStart,
    /// More text of the message. Live only.
    TextDelta {
        /// The added text.
        text: String,
    },
    /// More reasoning of the model. Live only.
    ThinkingDelta {
        /// The added text.
        text: String,
    },
    /// More of a tool call that the model is writing. Live only.
    ToolCallDelta {
        /// Id of the call.
        call: CallId,
        /// Name of the tool.
        tool: String,
        /// Added text of the arguments.
        text: String,
    },
    /// An entry was replaced.
    MessageUpdate {
        /// The entry.
        entry: EntryId,
    },
    /// An entry was appended.
    MessageEnd {
        /// The entry.
        entry: EntryId,
    },
    /// A tool call started.
    ToolStart {
        /// Id of the call.
        call: CallId,
        /// Name of the tool. The arguments are in the entry that requested the call.
        tool: String,
    },
    /// Output of a running tool. Live only.
    ToolOutput {
        /// Id of the call.
        call: CallId,
        /// The added output.
        text: String,
    },
    /// A tool call ended.
    ToolEnd {
        /// Id of the call.
        call: CallId,
        /// Outcome of the call.
        status: ResultStatus,
    },
    /// A prompt ended, with or without a turn. Each accepted prompt ends with one such event.
    TurnEnd {
        /// The prompt.
        prompt: PromptId,
        /// Why it ended.
        reason: TurnEnd,
        /// The prompt that it was merged into, whose turn answers both.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        merged_into: Option<PromptId>,
    },
    /// The history was signed.
    Sealed {
        /// The signature and what it covers.
        seal: Box<Seal>,
    },
    /// A thread was created.
    ThreadStart {
        /// The thread's key.
        key: String,
    },
    /// The queue changed.
    QueueState {
        /// The running prompt.
        running: Option<PromptId>,
        /// The waiting prompts, in order.
        waiting: Vec<PromptId>,
    },
    /// Compaction started.
    CompactionStart,
    /// Compaction ended.
    CompactionEnd {
        /// The compaction entry, if it succeeded.
        entry: Option<EntryId>,
        /// The error, if it failed.
        error: Option<ErrorInfo>,
    },
    /// A child session started.
    TaskStart {
        /// The child session.
        session: SessionId,
    },
    /// A child session ended.
    TaskEnd {
        /// The child session.
        session: SessionId,
    },
    /// The activity of a thread changed.
    Status {
        /// The new activity.
        status: StatusKind,
    },
    /// An error occurred.
    Error {
        /// Error details.
        error: ErrorInfo,
    },
    /// A gate was opened.
    DecisionGate {
        /// The gate.
        gate: Box<Gate>,
    },
    /// A gate was decided.
    DecisionGateResolved {
        /// The gate.
        gate: GateId,
        /// The decision.
        resolution: Resolution,
    },
    /// A gate expired.
    DecisionGateExpired {
        /// The gate.
        gate: GateId,
    },
    /// A gate was withdrawn.
    DecisionGateWithdrawn {
        /// The gate.
        gate: GateId,
        /// The cause.
        reason: String,
    },
    /// A model call failed and is retried. Discard the deltas received since its start.
    ModelRetry {
        /// The model.
        model: String,
        /// Number of attempts so far.
        attempts: u32,
        /// Delay before the next attempt, in milliseconds.
        wait_ms: u64,
        /// The cause.
        reason: String,
    },
    /// Failover: another model answers from now on.
    ModelSwitched {
        /// The previous model.
        from: String,
        /// The new model.
        to: String,
        /// The cause.
        reason: String,
    },
    /// A person changed what the session's agent may do without asking.
    PermissionModeChanged {
        /// The new mode.
        mode: PermissionMode,
    },
    /// The model's system prompt or tools changed. Together with the history this
    /// reproduces every model request.
    ContextChanged {
        /// The new context.
        context: Box<ModelContext>,
    },
    /// Usage of a model call.
    Usage {
        /// The usage.
        usage: Usage,
    },
    /// A tool produced an artifact.
    Artifact {
        /// Its name.
        name: String,
        /// Its MIME type.
        mime_type: String,
        /// Length in bytes.
        size: u64,
        /// Blob reference.
        source: String,
    },
    /// A command is about to start; the state of the workspace was kept.
    WorkspaceSnapshot {
        /// The call that runs the command.
        call: CallId,
        /// The prompt of the call.
        prompt: PromptId,
        /// Reference to the blob with the state; none if the workspace is empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Whether the changes of the command are unknown, because it runs in the background or
        /// the workspace has too many files.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// Files change: a tool is about to write one, a command changed some, or a person undid
    /// changes.
    FilesChanged {
        /// The call that changes them; none if a person undid changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The prompt of the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<PromptId>,
        /// The changes, sorted by path.
        changes: Vec<FileChange>,
        /// State of the workspace after a command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Whether changes may be missing, because the workspace has too many files.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// The commands that run in the background changed. Live only.
    BackgroundCommands {
        /// Those that run, and those that have just ended.
        commands: Vec<BackgroundCommand>,
    },
    /// The subscriber was too slow; the store has the missed events. Live only.
    Lagged {
        /// Minimum number of missed events.
        missed: u64,
    },
}

impl EventKind {
    /// The serialised type name.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// A command that an agent started in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundCommand {
    /// Its id in the session, such as `bg-1`.
    pub id: String,
    /// The command line.
    pub command: String,
    /// How it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// The part of a model request that is not history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelContext {
    /// The model.
    pub model: String,
    /// Context window in tokens.
    pub context_window: u64,
    /// Maximum output in tokens.
    pub max_output: u64,
    /// System prompt, without the environment.
    pub system: String,
    /// Facts about the workspace at the end of the system prompt, such as the date. They differ
    /// from run to run, so a replay does not compare them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub environment: String,
    /// The available tools.
    pub tools: Vec<ToolDefinition>,
}

/// A tool as presented to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

/// Why a prompt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TurnEnd {
    /// The model finished.
    EndTurn,
    /// An error occurred.
    Error,
    /// A user aborted it, before or during its turn.
    Abort,
    /// A limit was reached.
    Limit,
    /// A user withdrew it from the queue.
    Withdrawn,
    /// It was merged into a waiting prompt, whose turn answers both.
    Merged,
}

impl TurnEnd {
    /// Whether the prompt may have had a turn, which is over now.
    pub fn ends_turn(self) -> bool {
        !matches!(self, Self::Withdrawn | Self::Merged)
    }
}

/// The activity of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StatusKind {
    /// No work.
    #[default]
    Idle,
    /// A prompt is waiting to start.
    Queued,
    /// A model call is in progress, without output yet.
    Thinking,
    /// Tools are running.
    ToolCalling,
    /// The model is producing output.
    Streaming,
    /// The thread waits for a decision.
    BlockedOnDecisionGate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_equals_the_serialised_type() {
        let missed = 1;
        let session = SessionId::new();
        for kind in [
            EventKind::MessageStart,
            EventKind::CompactionStart,
            EventKind::TaskEnd { session },
            EventKind::Lagged { missed },
            EventKind::Usage {
                usage: Usage::default(),
            },
        ] {
            let written = serde_json::to_value(&kind).unwrap();
            assert_eq!(written["type"], kind.name());
        }
    }
}
