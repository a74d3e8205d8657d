//! The in-memory sandbox.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lillux::path_policy::PathClass;
use rye_engine::BoxFuture;
use rye_engine::protocol::SandboxKind;
use rye_engine::sandbox::{
    Confinement, Exec, ExecObserver, FileInfo, ResolvedPath, Sandbox, SandboxError, SandboxFuture,
};

use crate::files::{Files, Limits, unusable};
use crate::path::{join, resolve, split};
use crate::shell::{Invocation, Shell};

/// Maximum run time of a script, also if the caller sets no timeout.
const MAX_RUN_TIME: Duration = Duration::from_mins(10);

/// Files in memory and a small shell that starts no processes. Nothing outside is
/// reachable, and everything is gone when it is dropped.
#[derive(Debug)]
pub struct VirtualSandbox {
    files: Mutex<Files>,
}

impl Default for VirtualSandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl VirtualSandbox {
    /// Creates an empty sandbox with default limits.
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// Creates an empty sandbox with the given limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            files: Mutex::new(Files::new(limits)),
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_now(&self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        let path = resolve("", path)?;
        let mut files = self.files();
        if let Some((parent, _)) = split(&path) {
            files.mkdir_all(parent)?;
        }
        files.write(&path, bytes)
    }

    fn list_now(&self, path: &str) -> Result<Vec<FileInfo>, SandboxError> {
        let dir = resolve("", path)?;
        let files = self.files();
        if !files.info(&dir)?.is_dir {
            return Err(unusable(path, "not a directory"));
        }
        let names = files.names(&dir).into_iter();
        names.map(|name| files.info(&join(&dir, &name))).collect()
    }

    async fn exec_now(
        &self,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<rye_engine::sandbox::ExecOutput, SandboxError> {
        let cwd = resolve("", exec.cwd.as_deref().unwrap_or_default())?;
        if !self.files().info(&cwd)?.is_dir {
            return Err(unusable(&cwd, "not a directory"));
        }
        let invocation = Invocation {
            script: exec.command,
            cwd,
            env: exec.env,
            stdin: exec.stdin,
            time: exec.timeout.unwrap_or(MAX_RUN_TIME).min(MAX_RUN_TIME),
            max_output: exec.max_output,
            max_streamed: exec.max_streamed,
        };
        Ok(Shell::run(invocation, &self.files, observer).await)
    }
}

fn ready<'a, T: Send + 'a>(outcome: Result<T, SandboxError>) -> SandboxFuture<'a, T> {
    Box::pin(std::future::ready(outcome))
}

impl Sandbox for VirtualSandbox {
    fn kind(&self) -> SandboxKind {
        SandboxKind::Virtual
    }

    fn confinement(&self) -> Confinement {
        Confinement::in_memory()
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        let path = resolve("", path);
        ready(
            path.and_then(|path| self.files().read(&path))
                .map(|bytes| bytes.to_vec()),
        )
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        ready(self.write_now(path, bytes))
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        ready(self.list_now(path))
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        ready(resolve("", path).and_then(|path| self.files().info(&path)))
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        ready(resolve("", path).and_then(|path| self.files().mkdir_all(&path)))
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        ready(resolve("", path).and_then(|path| self.files().remove(&path)))
    }

    fn rmdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        ready(resolve("", path).and_then(|path| self.files().remove_empty(&path)))
    }

    fn kill<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        // It never starts processes.
        Box::pin(std::future::ready(()))
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        // The file system has no links and no host paths.
        Box::pin(std::future::ready(ResolvedPath {
            path: path.to_owned(),
            class: PathClass::Plain,
        }))
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, rye_engine::sandbox::ExecOutput> {
        Box::pin(self.exec_now(exec, observer))
    }
}
