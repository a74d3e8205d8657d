//! Events: what happened, told to whoever listens.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    CallId, EntryId, ErrorInfo, Gate, GateId, Millis, QueueItemId, Resolution, ResultStatus, Seal,
    SessionId, ThreadId, Usage,
};

/// Something that happened, numbered within its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its number in the session, from 1, without gaps. What is only told live has none.
    pub sequence: Option<u64>,
    /// Whose it is.
    pub session: SessionId,
    /// Whose thread's, if one's.
    pub thread: Option<ThreadId>,
    /// When.
    pub at: Millis,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// A message begins; what follows until its end is told live.
    MessageStart,
    /// More of its words. Live.
    TextDelta {
        /// They.
        text: String,
    },
    /// More of what the model thinks. Live.
    ThinkingDelta {
        /// It.
        text: String,
    },
    /// More of a call that the model is writing. Live.
    ToolCallDelta {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What is added to its arguments, as text.
        text: String,
    },
    /// An entry was changed.
    MessageUpdate {
        /// Which.
        entry: EntryId,
    },
    /// An entry was written.
    MessageEnd {
        /// Which.
        entry: EntryId,
    },
    /// A tool begins.
    ToolStart {
        /// The call.
        call: CallId,
        /// The tool. With what is in the entry that asks for it.
        tool: String,
    },
    /// What a tool prints. Live.
    ToolOutput {
        /// The call.
        call: CallId,
        /// It.
        text: String,
    },
    /// A tool has ended.
    ToolEnd {
        /// The call.
        call: CallId,
        /// How.
        status: ResultStatus,
    },
    /// A turn has ended.
    TurnEnd {
        /// Whose.
        item: QueueItemId,
        /// How.
        reason: TurnEnd,
    },
    /// A history was signed.
    Sealed {
        /// The signature, and what is signed.
        seal: Box<Seal>,
    },
    /// A thread was made.
    ThreadStart {
        /// Its key.
        key: String,
    },
    /// What waits, now.
    QueueState {
        /// What runs.
        running: Option<QueueItemId>,
        /// What waits, in order.
        waiting: Vec<QueueItemId>,
    },
    /// A history begins to be summed up.
    CompactionStart,
    /// It was, or could not be.
    CompactionEnd {
        /// The entry with the sum.
        entry: Option<EntryId>,
        /// Why not.
        error: Option<ErrorInfo>,
    },
    /// A child begins.
    TaskStart {
        /// It.
        session: SessionId,
    },
    /// It has ended.
    TaskEnd {
        /// It.
        session: SessionId,
    },
    /// What a thread is doing.
    Status {
        /// That.
        status: StatusKind,
    },
    /// Something went wrong.
    Error {
        /// What.
        error: ErrorInfo,
    },
    /// A person is asked.
    DecisionGate {
        /// What.
        gate: Box<Gate>,
    },
    /// They have decided.
    DecisionGateResolved {
        /// Which gate.
        gate: GateId,
        /// What.
        resolution: Resolution,
    },
    /// They have not, in time.
    DecisionGateExpired {
        /// Which gate.
        gate: GateId,
    },
    /// They need not any more.
    DecisionGateWithdrawn {
        /// Which gate.
        gate: GateId,
        /// Why.
        reason: String,
    },
    /// A model could not answer, and is asked again. What it said meanwhile does not count.
    ModelRetry {
        /// The model.
        model: String,
        /// How often it was asked.
        tries: u32,
        /// How long is waited, in milliseconds.
        wait_ms: u64,
        /// Why.
        why: String,
    },
    /// Another model answers from here on.
    ModelSwitched {
        /// The one before.
        from: String,
        /// The one now.
        to: String,
        /// Why.
        why: String,
    },
    /// A model is told something else than before: who it is, and what it may call. With
    /// this, what was said can be replayed.
    Prompted {
        /// That.
        prompted: Box<Prompted>,
    },
    /// What a call of a model used up.
    Usage {
        /// That.
        usage: Usage,
    },
    /// A tool made something to keep.
    Artifact {
        /// Its name.
        name: String,
        /// Where the blob store has it.
        source: String,
    },
    /// The listener was too slow; what it missed is in the store. Live.
    Lagged {
        /// How many it missed, at least.
        missed: u64,
    },
}

impl EventKind {
    /// Its type, as it is written.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart => "message_start",
            Self::TextDelta { .. } => "text_delta",
            Self::ThinkingDelta { .. } => "thinking_delta",
            Self::ToolCallDelta { .. } => "tool_call_delta",
            Self::MessageUpdate { .. } => "message_update",
            Self::MessageEnd { .. } => "message_end",
            Self::ToolStart { .. } => "tool_start",
            Self::ToolOutput { .. } => "tool_output",
            Self::ToolEnd { .. } => "tool_end",
            Self::TurnEnd { .. } => "turn_end",
            Self::Sealed { .. } => "sealed",
            Self::ThreadStart { .. } => "thread_start",
            Self::QueueState { .. } => "queue_state",
            Self::CompactionStart => "compaction_start",
            Self::CompactionEnd { .. } => "compaction_end",
            Self::TaskStart { .. } => "task_start",
            Self::TaskEnd { .. } => "task_end",
            Self::Status { .. } => "status",
            Self::Error { .. } => "error",
            Self::DecisionGate { .. } => "decision_gate",
            Self::DecisionGateResolved { .. } => "decision_gate_resolved",
            Self::DecisionGateExpired { .. } => "decision_gate_expired",
            Self::DecisionGateWithdrawn { .. } => "decision_gate_withdrawn",
            Self::ModelRetry { .. } => "model_retry",
            Self::ModelSwitched { .. } => "model_switched",
            Self::Prompted { .. } => "prompted",
            Self::Usage { .. } => "usage",
            Self::Artifact { .. } => "artifact",
            Self::Lagged { .. } => "lagged",
        }
    }
}

/// What a model is told beside the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prompted {
    /// The model.
    pub model: String,
    /// Tokens that it can read and write at once.
    pub context_window: u64,
    /// Tokens that it can write at most.
    pub max_output: u64,
    /// What holds before anything is said.
    pub system: String,
    /// What it may call.
    pub tools: Vec<PromptedTool>,
}

/// A tool, as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptedTool {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The model had nothing more to do.
    EndTurn,
    /// Something went wrong.
    Error,
    /// Somebody ended it.
    Abort,
    /// A limit was reached.
    Limit,
}

/// What a thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StatusKind {
    /// Nothing.
    Idle,
    /// It waits to begin.
    Queued,
    /// The model is being called.
    Thinking,
    /// Tools run.
    ToolCalling,
    /// The model speaks.
    Streaming,
    /// A person must decide.
    BlockedOnDecisionGate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_event_is_the_type_that_is_written() {
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
