//! Sessions: purpose, status, sandbox and parent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::policy::PermissionMode;
use crate::{EntryId, GateId, Limits, Millis, Run, SandboxId, SessionId, ThreadId, Usage};

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
    /// What the session is about: the start of its first prompt, unless the user chose another
    /// title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The directory the agent works in.
    pub workspace: Option<String>,
    /// How the session is used.
    pub purpose: Purpose,
    /// Lifecycle state.
    pub status: SessionStatus,
    /// The sandbox of the tools.
    pub sandbox: Option<SandboxRef>,
    /// The parent, if this is a task.
    pub parent: Option<Parent>,
    /// Number of ancestors.
    pub depth: u32,
    /// Default model of the threads.
    pub model: Option<String>,
    /// What the agent may do without asking, its tasks included.
    #[serde(default, skip_serializing_if = "PermissionMode::is_default")]
    pub permission_mode: PermissionMode,
    /// Limits for the whole session, including child sessions.
    pub limits: Limits,
    /// Usage so far.
    pub usage: Usage,
    /// Progress, if a graph or a single call drives the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Default role of the threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// System prompt instead of the base system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// What the session does differently from the configuration of its project.
    #[serde(default, skip_serializing_if = "SessionSettings::is_empty")]
    pub settings: SessionSettings,
    /// Whether servers continue it on their own after its process died. Otherwise it continues when
    /// someone opens it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// The project that the session was created in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The entry of another session that this one was forked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkPoint>,
    /// The status before the failure, while the status is `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_before_error: Option<SessionStatus>,
    /// When the session was imported. Together with the creation time it distinguishes sessions
    /// that had the same id one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_at: Option<Millis>,
    /// Why the session could not be verified when it was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified_import: Option<String>,
    /// Gates of an imported session whose decisions must not be reused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untrusted_decisions: Vec<GateId>,
    /// Files whose changes were undone since the last turn. The next turn tells the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored_files: Vec<String>,
    /// Why the stored session cannot be read, in a list of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Data of the embedding application.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Creation time.
    pub created_at: Millis,
    /// Time of the last change, or of the end of the last turn.
    pub updated_at: Millis,
}

impl Session {
    /// A running session with default settings.
    pub fn new(id: SessionId, purpose: Purpose, now: Millis) -> Self {
        Self {
            id,
            user_id: None,
            org_id: None,
            title: None,
            workspace: None,
            purpose,
            status: SessionStatus::Running,
            sandbox: None,
            parent: None,
            depth: 0,
            model: None,
            permission_mode: PermissionMode::default(),
            limits: Limits::default(),
            usage: Usage::default(),
            run: None,
            role: None,
            system: None,
            settings: SessionSettings::default(),
            unattended: false,
            project: None,
            forked_from: None,
            status_before_error: None,
            imported_at: None,
            unverified_import: None,
            untrusted_decisions: Vec::new(),
            restored_files: Vec::new(),
            unreadable: None,
            metadata: Map::new(),
            created_at: now,
            updated_at: now,
        }
    }
}

/// What a session does differently from the configuration of its project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionSettings {
    /// Names of the tools that its agents have; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Models to try if a model fails, in order; as configured if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Vec<String>>,
    /// Compaction settings that replace configured ones.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub compaction: Map<String, Value>,
}

impl SessionSettings {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a session is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Used by a person.
    #[default]
    Interactive,
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
    /// Accepts and runs prompts.
    #[default]
    Running,
    /// Accepts prompts, but does not start them.
    Paused,
    /// Ended for good; accepts no prompts.
    Terminated,
    /// Failed; must be restored before it can continue.
    Error,
}

/// Reference to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxRef {
    /// The kind of sandbox.
    pub kind: SandboxKind,
    /// The sandbox's id.
    pub id: SandboxId,
    /// Directory that it works in, on the machine where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Where it runs, if not on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether changes reach the workspace only once a person has approved them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub review: bool,
}

impl SandboxRef {
    /// A new reference to a sandbox on this machine.
    pub fn new(kind: SandboxKind, workspace: Option<String>) -> Self {
        Self {
            kind,
            id: SandboxId::new(),
            workspace,
            target: None,
            review: false,
        }
    }
}

/// Where tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SandboxKind {
    /// Files in memory and a small shell; no processes.
    Virtual,
    /// The workspace, unconfined.
    Local,
    /// The workspace, confined by the kernel.
    Confined,
    /// A container with the workspace.
    Docker,
    /// Another machine.
    Remote,
}

/// An entry of a session, as the origin of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForkPoint {
    /// The session that was forked.
    pub session: SessionId,
    /// The last entry that both have in common.
    pub entry: EntryId,
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
