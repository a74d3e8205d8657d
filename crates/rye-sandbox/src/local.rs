//! The sandbox without isolation: a directory of this machine.

mod path;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lillux::path_policy::{
    ClassifiedPath, PathClass, PathPolicy, PrivateDirs, ProtectedPaths, SensitiveReason,
};
use lillux::process::{Command, Environment, ExecError, Exit, Handle, Stream, Supervisor};
use rye_engine::BoxFuture;
use rye_engine::protocol::SandboxKind;
use rye_engine::sandbox::{
    Confinement, Exec, ExecObserver, ExecOutput, FileInfo, Grants, ResolvedPath, Sandbox,
    SandboxError, SandboxFuture, WalkOptions, WalkResult,
};
use tokio::task::spawn_blocking;

use crate::files::unusable;
use crate::head_tail_buffer::HeadTailBuffer;
use path::{LocalPath, MAX_FILE_SIZE};

/// Time between `SIGTERM` and `SIGKILL`; short, because the user waits after an abort.
const GRACE: Duration = Duration::from_millis(100);

/// A directory of this machine. It **does not isolate anything**: commands run as the current
/// user with network access and access to all files, and paths may be absolute or lead out of
/// the directory. It only ends commands reliably: a command and all its descendants are gone
/// when it ends, after its timeout, when the future is dropped, and when this process dies.
///
/// Its own reads and writes reject the user's [protected](LocalSandbox::protected) directories;
/// commands are not restricted.
///
/// Commands inherit `PATH`, `HOME` and a few more variables of this process, but no keys.
#[derive(Clone)]
pub struct LocalSandbox {
    workspace: PathBuf,
    policy: Arc<PathPolicy>,
    pub(crate) supervisor: Arc<Supervisor>,
    environment: Environment,
    shell: &'static str,
}

impl LocalSandbox {
    /// Creates a sandbox in an existing directory. Start the supervisor first in `main`.
    pub fn new(
        workspace: impl AsRef<Path>,
        supervisor: impl Into<Arc<Supervisor>>,
    ) -> io::Result<Self> {
        let workspace = fs::canonicalize(workspace)?;
        if !workspace.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let shells = ["/bin/bash", "/usr/bin/bash"];
        let shell = shells.into_iter().find(|path| Path::new(path).exists());
        Ok(Self {
            policy: Arc::new(PathPolicy::new(&workspace, ProtectedPaths::default())),
            workspace,
            supervisor: supervisor.into(),
            environment: Environment::Minimal,
            shell: shell.unwrap_or("/bin/sh"),
        })
    }

    /// Sets which variables of this process commands inherit.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets the private directories, which are rejected, the user's home directories, and the
    /// project that the workspace is part of.
    #[must_use]
    pub fn protected(mut self, protected: ProtectedPaths, project: impl Into<PathBuf>) -> Self {
        let policy = PathPolicy::new(&self.workspace, protected);
        self.policy = Arc::new(policy.within_project(project));
        self
    }

    fn local_path(&self, path: &str) -> LocalPath {
        self.local_path_with(path, &Arc::new(self.policy.private()))
    }

    fn local_path_with(&self, path: &str, private: &Arc<PrivateDirs>) -> LocalPath {
        LocalPath {
            given: path.to_owned(),
            path: self.workspace.join(path),
            private: Arc::clone(private),
        }
    }

    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The program and arguments that run a command line.
    pub(crate) fn shell_command(&self, command: &str) -> Vec<OsString> {
        [self.shell, "-c", command].map(OsString::from).to_vec()
    }

    /// The real path of a file. Fails if it is private.
    pub(crate) fn real_path(&self, path: &str) -> Result<PathBuf, SandboxError> {
        self.local_path(path).real()
    }

    /// Runs a program that acts for a command, in the directory `cwd`.
    pub(crate) async fn run_program(
        &self,
        program: Vec<OsString>,
        cwd: PathBuf,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let mut program = program.into_iter();
        let mut out = HeadTailBuffer::new(exec.max_output, exec.max_streamed);
        let mut err = HeadTailBuffer::new(exec.max_output, exec.max_streamed);
        let started = AtomicBool::new(false);
        let output = {
            let mut command = Command::new(program.next().unwrap_or_default())
                .args(program)
                .cwd(&cwd)
                .environment(self.environment)
                .stdin(exec.stdin)
                .grace(GRACE)
                // The output is captured here, with its end.
                .output_limit(0)
                .on_start(|handle| {
                    started.store(true, Ordering::Relaxed);
                    observer.on_start(&handle.to_string());
                })
                .on_output(|stream, bytes| match stream {
                    Stream::Stdout => out.push(bytes, observer),
                    Stream::Stderr => err.push(bytes, observer),
                });
            for (name, value) in &exec.env {
                command = command.env(name, value);
            }
            if let Some(timeout) = exec.timeout {
                command = command.timeout(timeout);
            }
            let output = self.supervisor.exec(command).await;
            output.map_err(|error| {
                let message = error.to_string();
                // The reaper may have been killed before it reported the start.
                let may_have_started = matches!(error, ExecError::Supervision(_));
                if may_have_started || started.load(Ordering::Relaxed) {
                    SandboxError::Interrupted(message)
                } else {
                    SandboxError::Exec(message)
                }
            })?
        };
        let (stdout, is_out_truncated) = out.finish();
        let (mut stderr, is_err_truncated) = err.finish();
        if output.survivors > 0 {
            let note = format!("\n{} processes could not be killed\n", output.survivors);
            stderr.push_str(&note);
        }
        Ok(ExecOutput {
            stdout,
            stderr,
            exit_code: match output.exit {
                Exit::Code(code) => Some(code),
                Exit::Signal(_) | Exit::Unknown => None,
            },
            timed_out: output.timed_out,
            truncated: is_out_truncated || is_err_truncated,
            ..ExecOutput::default()
        })
    }

    async fn run(
        &self,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let cwd = self.real_path(exec.cwd.as_deref().unwrap_or_default())?;
        let program = self.shell_command(&exec.command);
        self.run_program(program, cwd, exec, observer).await
    }
}

impl Sandbox for LocalSandbox {
    fn kind(&self) -> SandboxKind {
        SandboxKind::Local
    }

    fn confinement(&self) -> Confinement {
        Confinement::none()
    }

    fn working_dir(&self) -> Option<String> {
        Some(self.workspace.to_string_lossy().into_owned())
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        let (policy, given) = (Arc::clone(&self.policy), path.to_owned());
        let resolved = spawn_blocking(move || resolve_target(&policy, &given).0);
        Box::pin(async move {
            resolved.await.unwrap_or_else(|_| ResolvedPath {
                path: path.to_owned(),
                class: PathClass::Sensitive(SensitiveReason::Unresolvable),
            })
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        let path = self.local_path(path);
        blocking(move || path.read(MAX_FILE_SIZE))
    }

    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        max_size: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        let private = Arc::new(self.policy.private());
        let local_paths = paths.iter().map(|it| self.local_path_with(it, &private));
        let local_paths: Vec<_> = local_paths.collect();
        Box::pin(async move {
            let read = move || {
                let bytes = local_paths.iter().map(|path| path.read(max_size));
                bytes.collect::<Vec<_>>()
            };
            let fail = |error: tokio::task::JoinError| {
                let error = unusable("the disk", &error.to_string());
                vec![Err(error); paths.len()]
            };
            spawn_blocking(read).await.unwrap_or_else(fail)
        })
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        let path = self.local_path(&walk.path);
        let walk = walk.clone();
        let stop = tree::StopOnDrop::default();
        let is_stopped = stop.flag();
        let result = blocking(move || tree::walk(&path, &walk, &is_stopped));
        Box::pin(async move {
            // Dropping the future stops the walk.
            let _stop = stop;
            result.await
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        let (path, bytes) = (self.local_path(path), bytes.to_vec());
        blocking(move || path.write(&bytes))
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        let (path, bytes) = (self.local_path(path), bytes.to_vec());
        let (policy, permitted) = (Arc::clone(&self.policy), permitted.clone());
        blocking(move || {
            let (found, real) = resolve_target(&policy, &path.given);
            if found != permitted {
                return Err(SandboxError::PathChanged(path.given));
            }
            // No link is followed from here on, so this writes to the path that was compared.
            path.write_at(&real, &bytes)
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        let path = self.local_path(path);
        blocking(move || path.list())
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        let path = self.local_path(path);
        blocking(move || path.info())
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let path = self.local_path(path);
        blocking(move || {
            let created = PathPolicy::create_dir(&path.real()?);
            created.map(drop).map_err(|error| path.error(&error))
        })
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let (path, workspace) = (self.local_path(path), self.workspace.clone());
        blocking(move || path.remove(&workspace))
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        let handle = process.parse::<Handle>();
        Box::pin(async move {
            if let Ok(handle) = handle {
                // A process that cannot be killed belongs to another user.
                let _ = spawn_blocking(move || handle.kill(GRACE)).await;
            }
        })
    }

    /// Nothing is confined, so there is nothing to widen.
    fn widened(&self, _: &Grants) -> Result<Arc<dyn Sandbox>, SandboxError> {
        Ok(Arc::new(self.clone()))
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput> {
        Box::pin(self.run(exec, observer))
    }
}

/// Resolves a path: as shown to the user, and the real path.
fn resolve_target(policy: &PathPolicy, path: &str) -> (ResolvedPath, PathBuf) {
    let ClassifiedPath { real, class } = policy.classify(path);
    let workspace = policy.workspace();
    let path = if path::normalize(&workspace.join(path)) == real {
        path.to_owned()
    } else {
        let relative = real.strip_prefix(workspace).unwrap_or(&real);
        relative.to_string_lossy().into_owned()
    };
    (ResolvedPath { path, class }, real)
}

/// Runs file operations on a blocking thread.
fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> SandboxFuture<'a, T> {
    Box::pin(async move {
        let outcome = spawn_blocking(work).await;
        outcome.unwrap_or_else(|error| Err(unusable("the disk", &error.to_string())))
    })
}
