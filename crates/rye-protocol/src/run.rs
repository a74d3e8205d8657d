//! Runs: sessions that a graph or a single call drives, instead of a model.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{EffectClass, GateId, GateStatus, Millis};

/// What a run executes and how far it is. Part of its session, so that runs can be listed without
/// their history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Id of the tool or graph.
    pub item: String,
    /// Progress of the run.
    pub status: RunStatus,
    /// The node of a graph that runs, or that the run continues with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Number of started steps of a graph.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u64,
    /// When the run stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
}

impl Run {
    /// A run that is about to start.
    pub fn new(item: impl Into<String>) -> Self {
        Self {
            item: item.into(),
            status: RunStatus::Running,
            node: None,
            steps: 0,
            ended_at: None,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunStatus {
    /// The run has not stopped. If no process holds its session, the process has died.
    Running,
    /// The run completed.
    Completed,
    /// A node or the call failed; the state is kept.
    Failed,
    /// The run reached `max_steps`.
    Limit,
    /// The user cancelled the run, or denied its call.
    Cancelled,
    /// A signal or its caller ended the process before the run ended.
    Interrupted,
    /// The run reached its time limit.
    TimedOut,
    /// The run stopped after the requested number of steps.
    Paused,
}

impl RunStatus {
    /// The name, as used in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A step in the history of a graph run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// The run starts.
    Started(Box<RunStart>),
    /// A process resumes the run.
    Resumed {
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
        /// Parameters of the call, or the items of a foreach, unless they are too long to record.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        input: Value,
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
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
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
        gate: GateId,
    },
    /// A gate was closed.
    GateClosed {
        /// The gate.
        gate: GateId,
        /// How it was closed.
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
        /// Result of the call or decision, if the state or the next node depends on it.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        result: Value,
        /// Whether the result is too long to record.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_result_omitted: bool,
        /// The next node.
        next: Option<String>,
        /// Whether the run fails because no node handles the error.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
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

impl RunEvent {
    /// Describes several steps in one line.
    pub fn summary(events: &[Self]) -> String {
        let texts: Vec<_> = events.iter().filter_map(Self::describe).collect();
        texts.join(", ")
    }

    fn describe(&self) -> Option<String> {
        Some(match self {
            Self::Started(start) => format!("started {}", start.graph),
            Self::Resumed { .. } => "resumed".to_owned(),
            Self::Begin { node, .. } => format!("{node} started"),
            Self::Step { node, outcome, .. } => format!("{node} {}", outcome.as_str()),
            Self::ItemEnd { index, error, .. } => {
                let outcome = if error.is_some() { "failed" } else { "done" };
                format!("item {index} {outcome}")
            }
            Self::Retry { attempt, .. } => format!("attempt {attempt}"),
            Self::HookEnd { hook, .. } => format!("hook {hook} ended"),
            Self::Warning { message, .. } => format!("warning: {message}"),
            Self::End { status, .. } => status.as_str().to_owned(),
            Self::ItemBegin { .. }
            | Self::HookBegin { .. }
            | Self::Gate { .. }
            | Self::GateClosed { .. } => return None,
        })
    }
}

/// Start of a graph run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunStart {
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
}

/// New version of a graph that changed during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphChange {
    /// Hash of the new content.
    pub graph_hash: String,
    /// New source text.
    pub text: String,
}

/// Outcome of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
        self.into()
    }
}

/// Error of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
