//! Sessions: purpose, status, sandbox and parent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Limits, Millis, Run, SandboxId, SessionId, ThreadId, Usage};

/// A session: threads that share a sandbox and tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    /// Unique id.
    pub id: SessionId,
    /// The owner.
    pub user_id: Option<String>,
    /// The owner's organisation.
    pub org_id: Option<String>,
    /// The directory the agent works in.
    pub workspace: Option<String>,
    /// How the session is used.
    pub purpose: Purpose,
    /// Lifecycle state.
    pub status: SessionStatus,
    /// The sandbox of the tools.
    pub sandbox: Option<SandboxRef>,
    /// The sandbox's last snapshot.
    pub snapshot_id: Option<String>,
    /// The parent, if this is a task.
    pub parent: Option<Parent>,
    /// Number of ancestors.
    pub depth: u32,
    /// Default model of the threads.
    pub model: Option<String>,
    /// Limits for the whole session, including child sessions.
    pub limits: Limits,
    /// Usage so far.
    pub usage: Usage,
    /// Progress, if a graph or a single call drives the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Additional data of the host.
    pub metadata: Map<String, Value>,
    /// Creation time.
    pub created_at: Millis,
    /// Time of the last change.
    pub updated_at: Millis,
}

/// How a session is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Used by a person.
    #[default]
    Interactive,
    /// Coordinates other sessions.
    Orchestrator,
    /// Runs a graph.
    Workflow,
    /// Runs a task of another session.
    Child,
    /// Records one call that no model made.
    Run,
}

/// Lifecycle state of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// The sandbox is being created.
    #[default]
    Initializing,
    /// Accepts and runs prompts.
    Running,
    /// Accepts prompts, but does not start them.
    Paused,
    /// The sandbox is suspended.
    Hibernated,
    /// Ended for good; accepts no prompts.
    Terminated,
    /// Failed; must be restored before it can continue.
    Error,
}

/// Reference to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxRef {
    /// The kind: `virtual`, `local` or `confined`.
    pub kind: String,
    /// The sandbox's id.
    pub id: SandboxId,
}

/// The parent of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parent {
    /// The parent session.
    pub session: SessionId,
    /// The thread that started the task.
    pub thread: ThreadId,
}
