//! Events of a run's journal.

use rye_items::metadata::EffectClass;
use rye_protocol::{Gate, GateId, GateStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The run starts.
    Started(Box<RunStart>),
    /// A process resumes the run.
    Resumed {
        /// Boot id, as in [`RunStart::boot`].
        boot: String,
        /// The new graph, if it changed and the user accepted that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changed: Option<GraphChange>,
        /// The node to continue with, if the user chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// State values that the user overrides.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        state: Map<String, Value>,
    },
    /// A node starts.
    Begin {
        /// Number of the step, from 1.
        step: u64,
        /// Name of the node.
        node: String,
        /// Effect class, which decides whether the node may be repeated after a crash.
        effect: EffectClass,
    },
    /// An item of a foreach starts.
    ItemBegin {
        /// Index of the item, from 0.
        index: usize,
        /// Effect class, if the items call different tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<EffectClass>,
    },
    /// An item of a foreach ended.
    ItemEnd {
        /// Index of the item, from 0.
        index: usize,
        /// Result of the call.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        result: Value,
        /// The error, if it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
        /// Whether the result came from the cache.
        #[serde(default, skip_serializing_if = "is_false")]
        cached: bool,
    },
    /// A call failed and is retried.
    Retry {
        /// Number of the next attempt; the first retry is attempt 2.
        attempt: u32,
        /// Error of the previous attempt.
        error: NodeError,
    },
    /// A gate was opened.
    Gate {
        /// The gate.
        gate: Box<Gate>,
    },
    /// A gate was closed.
    GateClosed {
        /// Id of the gate.
        gate: GateId,
        /// Final status of the gate.
        status: GateStatus,
    },
    /// A node ended.
    Step {
        /// Number of the step.
        step: u64,
        /// Name of the node.
        node: String,
        /// Outcome of the node.
        outcome: NodeOutcome,
        /// State values that the node set.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        set: Map<String, Value>,
        /// The error, if it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
        /// Output of the graph, if the node is a return.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// The next node.
        next: Option<String>,
        /// Whether the run fails because no node handles the error.
        #[serde(default, skip_serializing_if = "is_false")]
        fatal: bool,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// A hook starts.
    HookBegin {
        /// Index of the hook, from 0.
        hook: usize,
        /// Number of the preceding step.
        step: u64,
        /// Name of the triggering event.
        trigger: String,
        /// Effect class, which decides whether the hook may be repeated after a crash.
        effect: EffectClass,
    },
    /// A hook ended.
    HookEnd {
        /// Index of the hook, from 0.
        hook: usize,
        /// Number of the preceding step.
        step: u64,
        /// The error, if it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
    },
    /// A warning.
    Warning {
        /// Name of the node.
        node: String,
        /// Explanation for the user.
        message: String,
    },
    /// A snapshot of the state was stored.
    Snapshot {
        /// Hash of the snapshot in the content store.
        hash: String,
    },
    /// The run stopped.
    End {
        /// Status of the run.
        status: RunStatus,
        /// The error, unless the run completed or paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
        /// Output of the graph.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// The node to continue with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Start of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    /// Id of the run.
    pub run: String,
    /// Id of the graph.
    pub graph: String,
    /// Hash of the graph's content.
    pub graph_hash: String,
    /// Source text of the graph, which the run uses even if the file changes.
    pub text: String,
    /// Inputs of the run.
    pub inputs: Value,
    /// Initial state.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub state: Map<String, Value>,
    /// First node.
    pub start: String,
    /// Boot id of the machine. Unflushed lines can be lost only if the machine restarted.
    pub boot: String,
}

/// New version of a graph that changed during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphChange {
    /// Hash of the new content.
    pub graph_hash: String,
    /// New source text.
    pub text: String,
}

/// Outcome of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// The node succeeded.
    Done,
    /// The result came from the cache.
    Cached,
    /// The node failed.
    Failed,
    /// The process died during the call; whether the call had an effect is unknown.
    Interrupted,
}

impl NodeOutcome {
    /// The name, as used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Cached => "cached",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Status of a run that no process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The run completed.
    Completed,
    /// A node failed; the state is kept.
    Failed,
    /// The run reached `max_steps`.
    Limit,
    /// The run was cancelled.
    Cancelled,
    /// The run reached its time limit.
    TimedOut,
    /// The run stopped after the requested number of steps.
    Paused,
}

impl RunStatus {
    /// The name, as used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Limit => "limit",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Paused => "paused",
        }
    }
}

/// Error of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    /// Stable error code for scripts.
    pub code: String,
    /// Explanation for the user.
    pub message: String,
    /// Advice on how to fix the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl NodeError {
    /// Creates an error without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            hint: None,
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Sequence number, from 1.
    pub seq: u64,
    /// Time in milliseconds since the Unix epoch.
    pub at: i64,
    /// The event.
    pub event: Event,
}
