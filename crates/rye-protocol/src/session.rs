//! Sessions.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Limits, Millis, SandboxId, SessionId, ThreadId, Usage};

/// A session: threads that share a sandbox and tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Whose it is.
    pub user_id: Option<String>,
    /// Whose organisation's.
    pub org_id: Option<String>,
    /// The folder it is about.
    pub workspace: Option<String>,
    /// What it is for.
    pub purpose: Purpose,
    /// How it stands.
    pub status: SessionStatus,
    /// Where its tools work.
    pub sandbox: Option<SandboxRef>,
    /// The sandbox's last snapshot.
    pub snapshot_id: Option<String>,
    /// Whose child it is.
    pub parent: Option<Parent>,
    /// How many parents are above it.
    pub depth: u32,
    /// The model of threads that name none.
    pub model: Option<String>,
    /// How much it may use up.
    pub limits: Limits,
    /// How much it has used up.
    pub usage: Usage,
    /// What the host wants to remember.
    pub metadata: Map<String, Value>,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// What a session is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A person talks to it.
    #[default]
    Interactive,
    /// It directs others.
    Orchestrator,
    /// A program runs it.
    Workflow,
    /// Another session made it.
    Child,
    /// It records one call, which no model makes.
    Run,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Its sandbox is being made.
    #[default]
    Initializing,
    /// It takes prompts.
    Running,
    /// It takes prompts and begins none.
    Paused,
    /// Its sandbox is put away.
    Hibernated,
    /// It is over.
    Terminated,
    /// It cannot go on until somebody restores it.
    Error,
}

/// Where tools work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxRef {
    /// Which kind: `virtual`, `local`, `confined` and so on.
    pub kind: String,
    /// Which one.
    pub id: SandboxId,
}

/// Whose child a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parent {
    /// The session above.
    pub session: SessionId,
    /// Its thread.
    pub thread: ThreadId,
}
