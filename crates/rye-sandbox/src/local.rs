//! The sandbox that is none: a folder of this machine.

mod place;
mod tree;

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
use rye_engine::sandbox::{
    Exec, ExecObserver, ExecOutput, FileInfo, ResolvedPath, Sandbox, SandboxError, SandboxFuture,
    WalkOptions, WalkResult,
};
use tokio::task::spawn_blocking;

use crate::files::unusable;
use crate::head_tail_buffer::HeadTailBuffer;
use place::{LONGEST, Place};

/// How long a tree that is to end has before it is killed: who aborts does not wait.
const GRACE: Duration = Duration::from_millis(100);

/// A folder of this machine. It **confines nothing**: programs run as the user that runs
/// this one, with the network and all files, and paths may be absolute or lead out of the
/// folder. What it does is to end them: a program and all that it started are gone when
/// it ends, when its time is up, when nobody waits for it any more, and when this process
/// dies, of whatever cause.
///
/// Its own reads and writes refuse the [protected](Local::protected) directories of the user;
/// a program that it runs does not know of them.
///
/// Programs see `PATH`, `HOME` and a few more of this process's variables, not its keys.
#[derive(Clone)]
pub struct Local {
    workspace: PathBuf,
    policy: Arc<PathPolicy>,
    supervisor: Arc<Supervisor>,
    environment: Environment,
    shell: &'static str,
}

impl Local {
    /// A folder that is there, and who runs programs: started first thing in `main`.
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

    /// Which of this process's variables programs see.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// With private directories, which it refuses to use, with the user's home directories,
    /// and with the project that the workspace is a part of.
    #[must_use]
    pub fn protected(mut self, protected: ProtectedPaths, project: impl Into<PathBuf>) -> Self {
        let policy = PathPolicy::new(&self.workspace, protected);
        self.policy = Arc::new(policy.within_project(project));
        self
    }

    fn place(&self, path: &str) -> Place {
        self.place_among(path, &Arc::new(self.policy.private()))
    }

    fn place_among(&self, path: &str, private: &Arc<PrivateDirs>) -> Place {
        Place {
            shown: path.to_owned(),
            path: self.workspace.join(path),
            private: Arc::clone(private),
        }
    }

    async fn run(
        &self,
        exec: Exec,
        watcher: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let cwd = self.place(exec.cwd.as_deref().unwrap_or_default());
        let cwd = cwd.real()?;
        let mut out = HeadTailBuffer::new(exec.max_output, exec.max_streamed);
        let mut err = HeadTailBuffer::new(exec.max_output, exec.max_streamed);
        let started = AtomicBool::new(false);
        let output = {
            let mut command = Command::new(self.shell)
                .args(["-c", &exec.command])
                .cwd(&cwd)
                .environment(self.environment)
                .stdin(exec.stdin)
                .grace(GRACE)
                // What is kept is kept here, with its end.
                .output_limit(0)
                .on_start(|handle| {
                    started.store(true, Ordering::Relaxed);
                    watcher.on_start(&handle.to_string());
                })
                .on_output(|stream, bytes| match stream {
                    Stream::Stdout => out.push(bytes, watcher),
                    Stream::Stderr => err.push(bytes, watcher),
                });
            for (name, value) in &exec.env {
                command = command.env(name, value);
            }
            if let Some(timeout) = exec.timeout {
                command = command.timeout(timeout);
            }
            let output = self.supervisor.exec(command).await;
            output.map_err(|error| {
                let told = error.to_string();
                // Who was to keep it may have been killed before it said that it began.
                let is_unknown = matches!(error, ExecError::Supervision(_));
                if is_unknown || started.load(Ordering::Relaxed) {
                    SandboxError::Interrupted(told)
                } else {
                    SandboxError::Exec(told)
                }
            })?
        };
        let (stdout, out_cut) = out.finish();
        let (mut stderr, err_cut) = err.finish();
        if output.survivors > 0 {
            let note = format!("\n{} processes could not be ended\n", output.survivors);
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
            truncated: out_cut || err_cut,
        })
    }
}

impl Sandbox for Local {
    fn kind(&self) -> &'static str {
        "local"
    }

    fn working_dir(&self) -> Option<String> {
        Some(self.workspace.to_string_lossy().into_owned())
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        let (policy, given) = (Arc::clone(&self.policy), path.to_owned());
        let looked = spawn_blocking(move || target(&policy, &given).0);
        Box::pin(async move {
            looked.await.unwrap_or_else(|_| ResolvedPath {
                path: path.to_owned(),
                class: PathClass::Sensitive(SensitiveReason::Unresolvable),
            })
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        let place = self.place(path);
        blocking(move || place.read(LONGEST))
    }

    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        longest: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        let private = Arc::new(self.policy.private());
        let places = paths.iter().map(|path| self.place_among(path, &private));
        let places: Vec<_> = places.collect();
        Box::pin(async move {
            let read = move || {
                let bytes = places.iter().map(|place| place.read(longest));
                bytes.collect::<Vec<_>>()
            };
            let wrong = |error: tokio::task::JoinError| {
                let error = unusable("the disk", &error.to_string());
                vec![Err(error); paths.len()]
            };
            spawn_blocking(read).await.unwrap_or_else(wrong)
        })
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        let place = self.place(&walk.path);
        let walk = walk.clone();
        let stop = tree::Stop::default();
        let stopped = stop.flag();
        let walked = blocking(move || tree::walk(&place, &walk, &stopped));
        Box::pin(async move {
            // Whoever does not wait any more ends the walk.
            let _stop = stop;
            walked.await
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        let (place, bytes) = (self.place(path), bytes.to_vec());
        blocking(move || place.write(&bytes))
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        let (place, bytes) = (self.place(path), bytes.to_vec());
        let (policy, permitted) = (Arc::clone(&self.policy), permitted.clone());
        blocking(move || {
            let (found, real) = target(&policy, &place.shown);
            if found != permitted {
                return Err(SandboxError::PathChanged(place.shown));
            }
            // What was compared is what is written to: no link is followed from here on.
            place.write_at(&real, &bytes)
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        let place = self.place(path);
        blocking(move || place.list())
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        let place = self.place(path);
        blocking(move || place.info())
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let place = self.place(path);
        blocking(move || {
            let made = PathPolicy::create_dir(&place.real()?);
            made.map(drop).map_err(|error| place.wrong(&error))
        })
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let (place, workspace) = (self.place(path), self.workspace.clone());
        blocking(move || place.remove(&workspace))
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        let handle = process.parse::<Handle>();
        Box::pin(async move {
            if let Ok(handle) = handle {
                // One that cannot be ended is not ours any more.
                let _ = spawn_blocking(move || handle.kill(GRACE)).await;
            }
        })
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        watcher: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput> {
        Box::pin(self.run(exec, watcher))
    }
}

/// Where a path leads, as it is shown, and its real path.
fn target(policy: &PathPolicy, path: &str) -> (ResolvedPath, PathBuf) {
    let ClassifiedPath { real, class } = policy.classify(path);
    let workspace = policy.workspace();
    let shown = if place::without_links(&workspace.join(path)) == real {
        path.to_owned()
    } else {
        let shown = real.strip_prefix(workspace).unwrap_or(&real);
        shown.to_string_lossy().into_owned()
    };
    (ResolvedPath { path: shown, class }, real)
}

/// Does what may wait for a disk where nobody else waits.
fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> SandboxFuture<'a, T> {
    Box::pin(async move {
        let done = spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(unusable("the disk", &error.to_string())))
    })
}
