//! What is written down of a run, in the order in which it happened.

use rye_items::metadata::Effect;
use rye_protocol::{Gate, GateId, GateStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that happened in a run, or is about to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A run begins.
    Started(Box<RunStart>),
    /// Another process goes on with it.
    Resumed {
        /// Since when the machine runs, as in [`RunStart::boot`].
        boot: String,
        /// The graph as it is now, where it has changed and that was accepted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changed: Option<GraphChange>,
        /// The node that it is to go on with, where somebody named another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// What somebody put over its state.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        state: Map<String, Value>,
    },
    /// A node is about to do something.
    Begin {
        /// The number of the step, from 1.
        step: u64,
        /// The node.
        node: String,
        /// Whether it may be repeated if nothing more is heard of it.
        effect: Effect,
    },
    /// An item of a foreach is about to be done.
    ItemBegin {
        /// Which, from 0.
        index: usize,
        /// Whether it may be repeated, where not all items call the same tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<Effect>,
    },
    /// An item of a foreach was done.
    ItemEnd {
        /// Which, from 0.
        index: usize,
        /// What it gave.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        result: Value,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
        /// Whether the result was kept from before, and nothing was called.
        #[serde(default, skip_serializing_if = "is_false")]
        cached: bool,
    },
    /// A call failed, and is tried again.
    Retry {
        /// The attempt that comes, the second being the first of these.
        attempt: u32,
        /// What went wrong with the one before.
        error: NodeError,
    },
    /// A person is asked.
    Gate {
        /// What.
        gate: Box<Gate>,
    },
    /// The question came to its end.
    Answered {
        /// Which.
        gate: GateId,
        /// How.
        status: GateStatus,
    },
    /// A node was done.
    Step {
        /// The number of the step.
        step: u64,
        /// The node.
        node: String,
        /// How it went.
        outcome: NodeOutcome,
        /// What it put into the state.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        set: Map<String, Value>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
        /// What the graph gives, where the node returns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// Where it goes on.
        next: Option<String>,
        /// Whether nobody sees to the error, so that the run fails with it.
        #[serde(default, skip_serializing_if = "is_false")]
        fatal: bool,
        /// How long it took, in microseconds.
        duration_us: u64,
    },
    /// A hook is about to act.
    HookBegin {
        /// Which of the graph's, from 0.
        hook: usize,
        /// After which step.
        step: u64,
        /// At which moment.
        moment: String,
        /// Whether it may be repeated.
        effect: Effect,
    },
    /// A hook has acted.
    HookEnd {
        /// Which.
        hook: usize,
        /// After which step.
        step: u64,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
    },
    /// Something a person may want to know.
    Warning {
        /// Where.
        node: String,
        /// What.
        message: String,
    },
    /// The state was put into the content store.
    Snapshot {
        /// Under this hash.
        hash: String,
    },
    /// Nothing more happens unless somebody resumes it.
    End {
        /// How it stands.
        status: RunStatus,
        /// Why, where that is not success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<NodeError>,
        /// What it gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// Where it would go on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How a run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    /// The run.
    pub run: String,
    /// The graph's id.
    pub graph: String,
    /// The hash of the graph's content.
    pub graph_hash: String,
    /// The graph's text: what is walked, whatever becomes of the file.
    pub text: String,
    /// What it was given.
    pub inputs: Value,
    /// The state that it began with.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub state: Map<String, Value>,
    /// The node that it began with.
    pub start: String,
    /// Since when the machine runs: what a process wrote and did not flush is lost only
    /// when the machine goes down.
    pub boot: String,
}

/// A graph that is not what it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphChange {
    /// The hash of its content now.
    pub graph_hash: String,
    /// Its text now.
    pub text: String,
}

/// How a node went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// It did what it should.
    Done,
    /// It did so before, and the result was kept.
    Cached,
    /// It failed.
    Failed,
    /// A process died while it was at it. Nobody knows whether it did anything.
    Interrupted,
}

impl NodeOutcome {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Cached => "cached",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How a run stands that nobody walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It came to its end.
    Completed,
    /// It failed, and the state is kept.
    Failed,
    /// It took as many steps as it may.
    Limit,
    /// Somebody ended it.
    Cancelled,
    /// Its time was up.
    TimedOut,
    /// It was to take so many steps and no more.
    Paused,
}

impl RunStatus {
    /// Its name.
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

/// What went wrong at a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    /// A stable word for scripts.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do, where there is one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl NodeError {
    /// An error in words.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            hint: None,
        }
    }

    /// With the next command.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A line of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// Its number, from 1.
    pub seq: u64,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// What.
    pub event: Event,
}
