//! The sandbox interface: the files and commands that tools work with.

mod editor;
mod provider;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lillux::path_policy::PathClass;
use rye_protocol::{ErrorCode, ErrorInfo, SandboxKind};
use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::review::ChangeReview;

pub use editor::EditorFiles;
pub(crate) use editor::with_editor;
pub(crate) use provider::Sandboxes;
pub use provider::{OpenSandbox, SandboxProvider, SandboxSpec};

pub use crate::text::omission_note;

/// Why a sandbox operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SandboxError {
    /// The path is outside of the workspace.
    #[error("{0} is outside of the workspace")]
    Outside(String),
    /// The path is in a private directory of the user.
    #[error("{0} is in a private directory, which tools and agents may not use")]
    Private(String),
    /// The path resolves differently than when its use was approved.
    #[error("{0} resolves to a different path than when it was approved")]
    PathChanged(String),
    /// The file or directory does not exist.
    #[error("there is no {0}")]
    NotFound(String),
    /// The file or directory cannot be used in this way.
    #[error("{path}: {reason}")]
    Unusable {
        /// Path as the caller gave it.
        path: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The command could not be started.
    #[error("cannot run the command: {0}")]
    Exec(String),
    /// The command was started, and its outcome is unknown.
    #[error("the command was interrupted: {0}")]
    Interrupted(String),
    /// The sandbox cannot be created, opened or reached.
    #[error("{reason}")]
    Unavailable {
        /// Cause of the failure.
        reason: String,
        /// A command that may help.
        hint: Option<String>,
    },
}

impl SandboxError {
    /// The sandbox cannot be created, opened or reached.
    pub fn unavailable(reason: impl std::fmt::Display) -> Self {
        Self::Unavailable {
            reason: reason.to_string(),
            hint: None,
        }
    }
}

impl From<SandboxError> for ErrorInfo {
    /// Converts to the error that a tool reports.
    fn from(error: SandboxError) -> Self {
        let code = match error {
            SandboxError::Interrupted(_) => ErrorCode::Interrupted,
            SandboxError::Private(_) => ErrorCode::Denied,
            _ => ErrorCode::ToolFailed,
        };
        Self::new(code, error.to_string())
    }
}

/// Metadata of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Path relative to the workspace.
    pub path: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes.
    pub size: u64,
    /// Modification time, in a unit of the sandbox; only the order is meaningful.
    pub modified: u64,
    /// Time of the last change of content or metadata, in nanoseconds since 1970, which programs
    /// cannot set; 0 if the sandbox has none.
    #[serde(default)]
    pub changed: u64,
    /// Whether the owner may execute it.
    #[serde(default)]
    pub executable: bool,
}

/// Selects files below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkOptions {
    /// The directory, or a single file.
    pub path: String,
    /// Include files whose name, or a directory on their path, starts with a dot.
    pub hidden: bool,
    /// Include files that `.gitignore` or `.ignore` exclude.
    pub ignored: bool,
    /// Maximum number of files.
    pub max_files: usize,
    /// Maximum duration.
    pub time_limit: Duration,
}

/// Result of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkResult {
    /// Files sorted by path, without directories and links.
    pub files: Vec<FileInfo>,
    /// Paths of the directories that were searched, below the first one.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Whether these are all files; false if a limit was reached.
    pub is_complete: bool,
}

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// The shell command line.
    pub command: String,
    /// Working directory, relative to the workspace.
    pub cwd: Option<String>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Kill the command after this time.
    pub timeout: Option<Duration>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// Maximum captured bytes of each stream.
    pub max_output: Option<usize>,
    /// Maximum streamed bytes of each stream, if less than `max_output`.
    pub max_streamed: Option<usize>,
}

/// Result of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; `None` if a signal ended the command.
    pub exit_code: Option<i32>,
    /// Whether the timeout was reached.
    pub timed_out: bool,
    /// Whether output was omitted.
    pub truncated: bool,
    /// Files that decide what programs do later and that the command created, such as `.git`. The
    /// sandbox moved them away; [`Sandbox::settle_quarantined`] restores or removes them.
    pub quarantined: Vec<String>,
    /// Connections that the sandbox refused, each with the reason: `crates.io:443: not allowed`.
    pub refused_connections: Vec<String>,
}

/// What one command or file operation may use in addition to the sandbox's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grants {
    /// Paths outside of the workspace that it can read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Paths outside of the workspace, or protected ones, that it can write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Hosts that it can connect to: `crates.io` or `crates.io:443`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    /// Runs it without the sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unconfined: bool,
}

impl Grants {
    /// Whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a sandbox confines. Approval rules depend on this, not on the kind of sandbox, so that a
/// new kind has to state it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Which files commands can write.
    pub files: FileAccess,
    /// Which network commands can use.
    pub network: NetworkAccess,
    /// Which processes commands can affect.
    pub processes: ProcessAccess,
    /// What enforces the confinement, if it depends on a policy.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
}

/// How a policy is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Name of the mechanism, such as `full` or `landlock`.
    pub tier: String,
    /// Hash of the policy.
    pub policy: String,
}

/// Which files commands can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// Files in memory only.
    Memory,
    /// Files of the workspace, and those that the policy names.
    Workspace,
    /// All files of the user.
    Host,
}

/// Which network commands can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// Commands have no network.
    None,
    /// Hosts that the policy or a person allows, through a proxy.
    Proxied,
    /// The network of the machine.
    Host,
}

/// Which processes commands can affect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessAccess {
    /// There are no processes.
    None,
    /// The processes of the same command.
    Own,
    /// All processes of the user.
    Host,
}

impl Confinement {
    /// Nothing is confined.
    pub fn none() -> Self {
        Self {
            files: FileAccess::Host,
            network: NetworkAccess::Host,
            processes: ProcessAccess::Host,
            enforcement: None,
        }
    }

    /// Nothing on the machine can be reached.
    pub fn in_memory() -> Self {
        Self {
            files: FileAccess::Memory,
            network: NetworkAccess::None,
            processes: ProcessAccess::None,
            enforcement: None,
        }
    }

    /// Whether a command can affect nothing outside of the sandbox that the policy does not name.
    pub fn confines_commands(&self) -> bool {
        self.files != FileAccess::Host
            && self.network != NetworkAccess::Host
            && self.processes != ProcessAccess::Host
    }
}

/// Observes a running command.
pub trait ExecObserver: Send + Sync {
    /// A process has started; `process` is the handle for [`Sandbox::kill`].
    fn on_start(&self, process: &str);
    /// The command has printed something.
    fn on_output(&self, text: &str);
    /// The command connects to a host that the policy does not mention: `crates.io:443`. Returns
    /// whether a person allows it. The command continues to run meanwhile.
    fn approve_connection<'a>(&'a self, target: &'a str) -> BoxFuture<'a, bool> {
        let _ = target;
        Box::pin(std::future::ready(false))
    }
}

/// Future of a sandbox operation.
pub type SandboxFuture<'a, T> = BoxFuture<'a, Result<T, SandboxError>>;

/// A path with its links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedPath {
    /// The resolved path, relative to the workspace if it is inside; the given path if there is no
    /// link on it.
    pub path: String,
    /// How the path may be used.
    pub class: PathClass,
}

/// Files and commands of a workspace. Paths are relative to the workspace. A sandbox on the host
/// refuses every use of a private directory with [`SandboxError::Private`].
pub trait Sandbox: Send + Sync + 'static {
    /// The kind of sandbox, such as `virtual` or `local`.
    fn kind(&self) -> SandboxKind;
    /// What it confines.
    fn confinement(&self) -> Confinement;
    /// The canonical directory of this machine that it works in, if there is one.
    fn working_dir(&self) -> Option<String> {
        None
    }
    /// Where its commands run, if it is not in memory: a directory of this or of another machine.
    /// An approval is valid only for the location at which the person gave it.
    fn location(&self) -> Option<String> {
        self.working_dir()
    }
    /// Reads a file.
    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>>;
    /// Writes a whole file and creates missing directories.
    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()>;
    /// Writes a file like [`write`](Self::write) if its path still resolves as it did when the
    /// write was approved.
    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            if self.resolve_path(path).await != *permitted {
                return Err(SandboxError::PathChanged(path.to_owned()));
            }
            self.write(path, bytes).await
        })
    }
    /// Lists a directory, sorted.
    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>>;
    /// Reads many files, each with its own result. A file longer than `longest` bytes is an
    /// error.
    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        longest: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        Box::pin(walk::read_many(self, paths, longest))
    }
    /// Lists the files below a directory, except ignored ones. `.git` is skipped unless it is the
    /// given path.
    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        Box::pin(walk::walk(self, walk))
    }
    /// Metadata of a file or directory.
    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo>;
    /// Metadata of many files, each with its own result.
    fn stat_many<'a>(
        &'a self,
        paths: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<FileInfo, SandboxError>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(paths.len());
            for path in paths {
                all.push(self.stat(path).await);
            }
            all
        })
    }
    /// Creates a directory and its parents.
    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()>;
    /// Removes a file, or a directory with its content.
    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()>;
    /// Removes an empty directory. Fails if it has content.
    fn rmdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()>;
    /// Sets whether a file may be executed. Has no effect in a sandbox without file modes.
    fn set_executable<'a>(&'a self, path: &'a str, executable: bool) -> SandboxFuture<'a, ()> {
        let _ = (path, executable);
        Box::pin(std::future::ready(Ok(())))
    }
    /// Kills a process that a dead host left running.
    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()>;
    /// Resolves the links of a path; a confining sandbox refuses paths that lead outside.
    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath>;

    /// The same sandbox with a policy that also allows the grants. Its
    /// [confinement](Self::confinement) states the hash of that policy.
    fn widened(&self, _: &Grants) -> Result<Arc<dyn Sandbox>, SandboxError> {
        Err(SandboxError::Unusable {
            path: format!("the {} sandbox", self.kind()),
            reason: "its limits are fixed".to_owned(),
        })
    }

    /// Restores files of [`ExecOutput::quarantined`] if `keep` is true, and removes them otherwise.
    fn settle_quarantined<'a>(&'a self, paths: &'a [String], keep: bool) -> SandboxFuture<'a, ()> {
        let _ = (paths, keep);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The review of its changes, if they reach the real files only after one.
    fn review(&self) -> Option<&dyn ChangeReview> {
        None
    }

    /// Runs a command. Dropping the future kills it with all its processes.
    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput>;
}
