//! Review mode: commands and file tools work on an overlay of the workspace, and a person decides
//! which changes reach the real files.
//!
//! The state of a session is a directory with `upper` (the changes, as overlayfs stores them),
//! `work` (of the kernel), `since` (its time is that of the last decision), `journal.json` while
//! changes are being [applied](apply), and `settled/` with the decisions.

mod apply;
mod diff;
mod scan;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lillux::Hash;
use lillux::durable::{self, IfExists};
use lillux::process::{Command, Environment, Supervisor};
use rustix::fs::{FlockOperation, flock};
use rye_engine::protocol::Settlement;
use rye_engine::review::{ChangeReview, Changes, ReviewDecision, Settled, set_hash};
use rye_engine::sandbox::{SandboxError, SandboxFuture};
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Launcher;
use super::files::FileRequest;
use super::launcher::{VIEW, ViewRef, ViewSpec, read_frame, write_frame};
use super::policy::ConfinementPolicy;
use crate::local::blocking;
use apply::{Applier, Failure};
use scan::Scan;

/// A session's changes, apart from the workspace.
pub(super) struct Review {
    state: Arc<State>,
    launcher: Launcher,
    supervisor: Arc<Supervisor>,
    spec: ViewSpec,
    /// Read by everything that uses the overlay; written while it changes underneath.
    view: RwLock<Option<Arc<View>>>,
}

/// The stored part.
struct State {
    dir: PathBuf,
    workspace: PathBuf,
    policy: ConfinementPolicy,
    /// Held while this process uses the state.
    lock: Mutex<Option<File>>,
    checkpoint: Box<dyn Fn() + Send + Sync>,
}

/// A process that has the overlay mounted and serves file operations.
pub(super) struct View {
    pub(super) reference: ViewRef,
    stream: Mutex<UnixStream>,
    process: JoinHandle<()>,
}

impl Drop for View {
    fn drop(&mut self) {
        // Kills the process.
        self.process.abort();
    }
}

/// The directories of a session's state.
fn upper(dir: &Path) -> PathBuf {
    dir.join("upper")
}

fn work(dir: &Path) -> PathBuf {
    dir.join("work")
}

/// Creates the directories of a session's state.
pub(super) fn create_state(dir: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let (upper, work) = (upper(dir), work(dir));
    for dir in [dir, &upper, &work] {
        durable::create_dir(dir, 0o700).map_err(io::Error::other)?;
    }
    Ok((upper, work))
}

impl Review {
    pub(super) fn new(
        dir: PathBuf,
        launcher: Launcher,
        supervisor: Arc<Supervisor>,
        spec: ViewSpec,
        checkpoint: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            state: Arc::new(State {
                workspace: spec.policy.workspace.clone(),
                policy: spec.confinement.clone(),
                dir,
                lock: Mutex::default(),
                checkpoint,
            }),
            launcher,
            supervisor,
            spec,
            view: RwLock::new(None),
        }
    }

    /// Runs `work` with the view, which is started if needed. Decisions wait until it is done.
    pub(super) async fn with_view<T>(
        &self,
        work: impl AsyncFnOnce(&Arc<View>) -> Result<T, SandboxError>,
    ) -> Result<T, SandboxError> {
        let guard = self.view.read().await;
        if let Some(view) = guard.as_ref().filter(|view| !view.process.is_finished()) {
            return work(view).await;
        }
        drop(guard);
        let mut guard = self.view.write().await;
        if guard.as_ref().is_none_or(|view| view.process.is_finished()) {
            *guard = Some(Arc::new(self.start_view().await?));
        }
        let guard = guard.downgrade();
        match guard.as_ref() {
            Some(view) => work(view).await,
            None => Err(SandboxError::Exec("the view has ended".to_owned())),
        }
    }

    /// Performs a file operation. Returns its result as JSON, and the bytes that it read.
    pub(super) async fn request(
        &self,
        request: FileRequest,
        body: Vec<u8>,
    ) -> Result<(Value, Vec<u8>), SandboxError> {
        self.with_view(async move |view| {
            let view = Arc::clone(view);
            blocking(move || view.call(&request, &body)).await
        })
        .await
    }

    async fn start_view(&self) -> Result<View, SandboxError> {
        let state = Arc::clone(&self.state);
        blocking(move || state.prepare().map_err(|error| exec_error(&error))).await?;
        let (own, theirs) = UnixStream::pair().map_err(|error| exec_error(&error))?;
        let spec = serde_json::to_string(&self.spec).unwrap_or_default();
        let mut program = self.launcher.command().into_iter();
        let reason = Arc::new(Mutex::new(Vec::new()));
        let (supervisor, output) = (Arc::clone(&self.supervisor), Arc::clone(&reason));
        let command = Command::new(program.next().unwrap_or_default())
            .args(program)
            .arg(VIEW)
            .arg(spec)
            .cwd("/")
            .environment(Environment::Minimal)
            .stdin_fd(theirs.into())
            .output_limit(0)
            .on_output(move |_, bytes| {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                output.extend_from_slice(bytes);
            });
        let process = tokio::spawn(async move {
            // Its end is noticed when the next operation fails.
            let _ = supervisor.exec(command).await;
        });
        let mut stream = own.try_clone().map_err(|error| exec_error(&error))?;
        let hello = spawn_blocking(move || read_frame(&mut stream)).await;
        let hello = hello.ok().and_then(Result::ok).flatten();
        let reference = hello.and_then(|(value, _)| serde_json::from_value(value).ok());
        let Some(reference) = reference else {
            let _ = process.await;
            let reason = reason.lock().unwrap_or_else(PoisonError::into_inner);
            let reason = String::from_utf8_lossy(&reason).into_owned();
            return Err(SandboxError::Exec(format!("review mode: {reason}")));
        };
        Ok(View {
            reference,
            stream: Mutex::new(own),
            process,
        })
    }

    /// The guards of the protected files that commands see, as arguments of the launcher.
    pub(super) async fn guards(
        &self,
        request: FileRequest,
    ) -> Result<Vec<std::ffi::OsString>, SandboxError> {
        let (_, bytes) = self.request(request, Vec::new()).await?;
        let arguments = bytes.split(|byte| *byte == 0).filter(|it| !it.is_empty());
        let arguments = arguments.map(|it| std::ffi::OsString::from_vec(it.to_vec()));
        Ok(arguments.collect())
    }
}

impl View {
    fn call(&self, request: &FileRequest, body: &[u8]) -> Result<(Value, Vec<u8>), SandboxError> {
        let lost = |error: io::Error| SandboxError::Interrupted(error.to_string());
        let stream = self.stream.lock();
        let mut stream = stream.unwrap_or_else(PoisonError::into_inner);
        let request = serde_json::to_value(request).map_err(|error| exec_error(&error))?;
        write_frame(&mut *stream, &request, body).map_err(lost)?;
        let answer = read_frame(&mut *stream).map_err(lost)?;
        let ended = || SandboxError::Interrupted("the view of the workspace has ended".to_owned());
        let (mut value, bytes) = answer.ok_or_else(ended)?;
        match value.get_mut("error").map(Value::take) {
            Some(error) => {
                let error = serde_json::from_value(error);
                Err(error.unwrap_or_else(|error| exec_error(&error)))
            }
            None => Ok((value["ok"].take(), bytes)),
        }
    }
}

fn exec_error(error: &dyn fmt::Display) -> SandboxError {
    SandboxError::Exec(format!("review mode: {error}"))
}

impl State {
    /// Creates what is missing, and completes what a dead process began.
    fn prepare(&self) -> io::Result<()> {
        let own = self.lock.lock();
        let mut own = own.unwrap_or_else(PoisonError::into_inner);
        if own.is_some() {
            return Ok(());
        }
        create_state(&self.dir)?;
        let mut options = OpenOptions::new();
        let lock = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.dir.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other("another process uses the session's changes"))?;
        let applier = self.applier();
        match applier.recover() {
            Ok(Some(journal)) => self.finish(&applier, &journal)?,
            Ok(None) | Err(Failure::Outdated) => {}
            Err(Failure::Io(error)) => return Err(error),
        }
        if !self.since_file().exists() {
            self.mark_start()?;
        }
        *own = Some(lock);
        Ok(())
    }

    fn applier(&self) -> Applier<'_> {
        Applier {
            state: &self.dir,
            upper: self.upper(),
            workspace: &self.workspace,
            checkpoint: &*self.checkpoint,
        }
    }

    fn upper(&self) -> PathBuf {
        upper(&self.dir)
    }

    fn since_file(&self) -> PathBuf {
        self.dir.join("since")
    }

    /// Remembers the current time as the one when the session started from the workspace.
    fn mark_start(&self) -> io::Result<()> {
        let file = self.since_file();
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::write(file, b""),
        }
    }

    fn changes(&self) -> io::Result<Changes> {
        self.prepare()?;
        let since = fs::metadata(self.since_file())?;
        let upper = self.upper();
        let scan = Scan {
            upper: &upper,
            workspace: &self.workspace,
            policy: &self.policy,
            since: (since.ctime(), since.ctime_nsec()),
        };
        let set = scan.run()?;
        let diff = diff::unified(&set, &self.workspace, &upper);
        Ok(Changes { set, diff })
    }

    fn settle(&self, decision: &ReviewDecision) -> io::Result<Settled> {
        let Changes { set, .. } = self.changes()?;
        if set_hash(&set) != decision.hash {
            return Ok(Settled::Outdated);
        }
        let nothing = rye_engine::protocol::Selection {
            only: vec![String::new()],
            ..Default::default()
        };
        let selection = decision.apply.as_ref().unwrap_or(&nothing);
        let applier = self.applier();
        match applier.apply(&decision.key, &set, selection, &decision.contents) {
            Ok(journal) => {
                self.finish(&applier, &journal)?;
                Ok(Settled::Done(journal.settlement))
            }
            Err(Failure::Outdated) => Ok(Settled::Outdated),
            Err(Failure::Io(error)) => Err(error),
        }
    }

    /// Discards the session's changes and records the decision.
    fn finish(&self, applier: &Applier<'_>, journal: &apply::Journal) -> io::Result<()> {
        for dir in [self.upper(), work(&self.dir)] {
            apply::remove_tree(&dir)?;
            (self.checkpoint)();
        }
        create_state(&self.dir)?;
        self.mark_start()?;
        (self.checkpoint)();
        let file = self.settlement_file(&journal.key);
        if let Some(dir) = file.parent() {
            durable::create_dir(dir, 0o700).map_err(io::Error::other)?;
        }
        let bytes = serde_json::to_vec(&journal.settlement)?;
        let written = durable::write(&file, &bytes, 0o600, IfExists::Replace);
        written.map_err(io::Error::other)?;
        (self.checkpoint)();
        applier.clean(journal)?;
        (self.checkpoint)();
        Ok(())
    }

    fn settlement_file(&self, key: &str) -> PathBuf {
        let name = Hash::digest(key).to_hex();
        self.dir.join("settled").join(name)
    }

    fn settlement(&self, key: &str) -> io::Result<Option<Settlement>> {
        self.prepare()?;
        match fs::read(self.settlement_file(key)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl ChangeReview for Review {
    fn changes(&self) -> SandboxFuture<'_, Changes> {
        Box::pin(async move {
            let _guard = self.view.read().await;
            let state = Arc::clone(&self.state);
            blocking(move || state.changes().map_err(|error| exec_error(&error))).await
        })
    }

    fn settle<'a>(&'a self, decision: &'a ReviewDecision) -> SandboxFuture<'a, Settled> {
        Box::pin(async move {
            // No command runs, and the next one gets a new overlay.
            let mut guard = self.view.write().await;
            if let Some(view) = guard.take() {
                view.process.abort();
            }
            let (state, decision) = (Arc::clone(&self.state), decision.clone());
            blocking(move || state.settle(&decision).map_err(|error| exec_error(&error))).await
        })
    }

    fn settlement<'a>(&'a self, key: &'a str) -> SandboxFuture<'a, Option<Settlement>> {
        let (state, key) = (Arc::clone(&self.state), key.to_owned());
        blocking(move || state.settlement(&key).map_err(|error| exec_error(&error)))
    }
}

/// Deletes the state of a session in review mode.
pub fn remove_review(dir: &Path) -> io::Result<()> {
    apply::remove_tree(dir)
}

/// Tries to mount an overlay of a workspace; the error is the reason why it does not work.
pub(super) fn probe(launcher: &Launcher, spec: &ViewSpec) -> Result<(), String> {
    let mut command = launcher.command().into_iter();
    let mut process = std::process::Command::new(command.next().unwrap_or_default());
    let spec = serde_json::to_string(spec).map_err(|error| error.to_string())?;
    let process = process.args(command).arg(VIEW).arg(spec).env_clear();
    let output = process.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(match reason.as_str() {
        "" => output.status.to_string(),
        _ => reason,
    })
}
