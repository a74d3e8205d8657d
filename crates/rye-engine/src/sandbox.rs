//! Where tools work.

mod measured;
mod walk;

use std::collections::BTreeMap;
use std::time::Duration;

use lillux::path_policy::PathClass;
use rye_protocol::{ErrorCode, ErrorInfo};

use crate::BoxFuture;

pub(crate) use measured::Measured;

/// Why a sandbox did not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// A path that leads out of the workspace.
    #[error("{0} is not in the workspace")]
    Outside(String),
    /// A path in a private directory of the user.
    #[error("{0} is in a private directory, which no tool or agent may use")]
    Private(String),
    /// A path that leads to another place than when its use was permitted.
    #[error("{0} leads to another place than when it was asked about")]
    PathChanged(String),
    /// There is no such file or folder.
    #[error("there is no {0}")]
    NotFound(String),
    /// It is there and cannot be used so.
    #[error("{path}: {reason}")]
    Unusable {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// A program could not be run.
    #[error("cannot run it: {0}")]
    Exec(String),
    /// A program ran, and what became of it nobody knows.
    #[error("it was interrupted: {0}")]
    Interrupted(String),
}

impl From<SandboxError> for ErrorInfo {
    /// As a tool tells it.
    fn from(error: SandboxError) -> Self {
        let code = match error {
            SandboxError::Interrupted(_) => ErrorCode::Interrupted,
            SandboxError::Private(_) => ErrorCode::Denied,
            _ => ErrorCode::ToolFailed,
        };
        Self::new(code, error.to_string())
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Its length.
    pub size: u64,
    /// When it last changed, as this sandbox counts: what changed later has more.
    pub modified: u64,
}

/// Which files of a tree are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkOptions {
    /// The folder above them; a file is a tree of its own.
    pub path: String,
    /// Also those whose name, or the name of a folder above, begins with a dot.
    pub hidden: bool,
    /// Also those that a `.gitignore` or an `.ignore` leaves out.
    pub ignored: bool,
    /// At most so many.
    pub max_files: usize,
    /// How long to look.
    pub time_limit: Duration,
}

/// The files of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkResult {
    /// They, without folders and links, in the order of their paths.
    pub files: Vec<FileInfo>,
    /// Whether these are all: there may be too many, or no time for more.
    pub is_complete: bool,
}

/// A program to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exec {
    /// What a shell reads.
    pub command: String,
    /// In which folder of the workspace.
    pub cwd: Option<String>,
    /// With which variables beside the sandbox's own.
    pub env: BTreeMap<String, String>,
    /// When it is ended.
    pub timeout: Option<Duration>,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// How much of each stream is kept.
    pub max_output: Option<usize>,
    /// How much of each stream is told live, where that is less than what is kept.
    pub max_streamed: Option<usize>,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it printed.
    pub stdout: String,
    /// What it said on the side.
    pub stderr: String,
    /// How it ended; none if a signal ended it.
    pub exit_code: Option<i32>,
    /// Whether its time was up.
    pub timed_out: bool,
    /// Whether something that it printed is left out.
    pub truncated: bool,
}

/// Who hears what happens while a program runs.
pub trait ExecObserver: Send + Sync {
    /// A process was started; its handle is to be written down.
    fn on_start(&self, process: &str);
    /// It printed something.
    fn on_output(&self, text: &str);
}

/// What a sandbox gives, some time.
pub type SandboxFuture<'a, T> = BoxFuture<'a, Result<T, SandboxError>>;

/// Where a path really leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The path itself; where there is a link on it, the path of the place that it leads to,
    /// relative to the workspace if it is in there.
    pub path: String,
    /// How it may be used.
    pub class: PathClass,
}

/// Where tools work. Paths are relative to the workspace. A sandbox on this machine refuses
/// every use of a private directory with [`SandboxError::Private`].
pub trait Sandbox: Send + Sync + 'static {
    /// Its kind: `virtual`, `local` and so on.
    fn kind(&self) -> &'static str;
    /// The folder of this machine that it works in, without links, where it is one. What a
    /// person approved in one folder is asked about again in another.
    fn working_dir(&self) -> Option<String> {
        None
    }
    /// The bytes of a file.
    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>>;
    /// Writes a file, whole, and makes the folders it needs.
    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()>;
    /// Writes a file, like [`write`](Self::write), if its path still leads to where it led
    /// when the write was permitted.
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
    /// What is in a folder, in order.
    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>>;
    /// The bytes of many files, each its own success. One that is longer than `longest`
    /// is refused.
    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        longest: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        Box::pin(walk::read_many(self, paths, longest))
    }
    /// All files of a tree but those that ignore files leave out. `.git` is never among
    /// them, unless it is asked for by name.
    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        Box::pin(walk::over(self, walk))
    }
    /// What is known of a file.
    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo>;
    /// Makes a folder, and those above it.
    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()>;
    /// Removes a file, or a folder with all that is in it.
    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()>;
    /// Ends a process that a dead host left running, by the handle that was written down.
    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()>;
    /// Where a path leads once links are followed; one that confines refuses what leads out.
    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath>;

    /// Runs a program. Dropping the future ends it with all that it started.
    fn exec<'a>(
        &'a self,
        exec: Exec,
        watcher: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput>;
}
