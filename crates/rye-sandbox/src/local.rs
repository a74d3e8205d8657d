//! The sandbox without isolation: a directory of this machine.

mod files;
mod path;
mod tree;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lillux::path_policy::{PathClass, ProtectedPaths, SensitiveReason};
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

pub(crate) use files::LocalFiles;

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
    pub(crate) files: LocalFiles,
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
        let shells = ["/bin/bash", "/usr/bin/bash"];
        let shell = shells.into_iter().find(|path| Path::new(path).exists());
        Ok(Self {
            files: LocalFiles::new(workspace)?,
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
        self.files = self.files.protected(protected, &project.into());
        self
    }

    pub(crate) fn workspace(&self) -> &Path {
        self.files.workspace()
    }

    /// The program and arguments that run a command line.
    pub(crate) fn shell_command(&self, command: &str) -> Vec<OsString> {
        [self.shell, "-c", command].map(OsString::from).to_vec()
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
        let cwd = self
            .files
            .real_path(exec.cwd.as_deref().unwrap_or_default())?;
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
        Some(self.workspace().to_string_lossy().into_owned())
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        let (files, given) = (self.files.clone(), path.to_owned());
        let resolved = spawn_blocking(move || files.resolve_path(&given));
        Box::pin(async move { resolved.await.unwrap_or_else(|_| unresolvable(path)) })
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.read(&path))
    }

    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        max_size: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        let (files, count, paths) = (self.files.clone(), paths.len(), paths.to_vec());
        Box::pin(async move {
            let fail = |error: tokio::task::JoinError| {
                let error = unusable("the disk", &error.to_string());
                vec![Err(error); count]
            };
            let read = spawn_blocking(move || files.read_many(&paths, max_size));
            read.await.unwrap_or_else(fail)
        })
    }

    fn stat_many<'a>(
        &'a self,
        paths: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<FileInfo, SandboxError>>> {
        let (files, count, paths) = (self.files.clone(), paths.len(), paths.to_vec());
        Box::pin(async move {
            let fail = |error: tokio::task::JoinError| {
                let error = unusable("the disk", &error.to_string());
                vec![Err(error); count]
            };
            let stat = spawn_blocking(move || files.stat_many(&paths));
            stat.await.unwrap_or_else(fail)
        })
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        walk_files(self.files.clone(), walk.clone())
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        let (files, path, bytes) = (self.files.clone(), path.to_owned(), bytes.to_vec());
        blocking(move || files.write(&path, &bytes))
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        let (files, path, bytes) = (self.files.clone(), path.to_owned(), bytes.to_vec());
        let permitted = permitted.clone();
        blocking(move || files.write_resolved(&path, &permitted, &bytes))
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.list(&path))
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.stat(&path))
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.mkdir(&path))
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.rm(&path))
    }

    fn rmdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.rmdir(&path))
    }

    fn set_executable<'a>(&'a self, path: &'a str, executable: bool) -> SandboxFuture<'a, ()> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.set_executable(&path, executable))
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

/// Walks files. Dropping the future stops the walk.
pub(crate) fn walk_files<'a>(
    files: LocalFiles,
    walk: WalkOptions,
) -> SandboxFuture<'a, WalkResult> {
    let stop = tree::StopOnDrop::default();
    let is_stopped = stop.flag();
    let result = blocking(move || files.walk(&walk, &is_stopped));
    Box::pin(async move {
        let _stop = stop;
        result.await
    })
}

/// A path whose target is unknown.
pub(crate) fn unresolvable(path: &str) -> ResolvedPath {
    ResolvedPath {
        path: path.to_owned(),
        class: PathClass::Sensitive(SensitiveReason::Unresolvable),
    }
}

/// Runs file operations on a blocking thread.
pub(crate) fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> SandboxFuture<'a, T> {
    Box::pin(async move {
        let outcome = spawn_blocking(work).await;
        outcome.unwrap_or_else(|error| Err(unusable("the disk", &error.to_string())))
    })
}
