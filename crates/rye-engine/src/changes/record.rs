//! Records what a tool call changes, before or while it changes it.

use std::collections::HashMap;
use std::sync::Arc;

use lillux::Hash;
use parking_lot::Mutex;
use rye_protocol::{EventKind, FileChange, FileContent, SandboxKind, SessionId};
use tokio::sync::oneshot;

use super::relative_path;
use super::snapshot::{Snapshot, SnapshotError, earliest_change};
use crate::blob::{BlobStore, SCHEME};
use crate::runner::ThreadCommand;
use crate::sandbox::{FileAccess, Sandbox, SandboxError};
use crate::store::{SessionStore, StoreError};
use crate::tool::{ToolContext, ToolError};

/// How many events are read from the store at once.
const PAGE: usize = 512;

/// The last known state of each workspace, by the session at the top. Its tasks share it.
#[derive(Default)]
pub(crate) struct Workspaces {
    known: Mutex<HashMap<SessionId, Arc<KnownWorkspace>>>,
}

/// The last known state of a workspace; none before the first command.
type KnownWorkspace = tokio::sync::Mutex<Option<Arc<Snapshot>>>;

impl Workspaces {
    fn of(&self, root: &SessionId) -> Arc<KnownWorkspace> {
        Arc::clone(self.known.lock().entry(root.clone()).or_default())
    }

    /// Forgets a workspace when its session is closed.
    pub(crate) fn forget(&self, root: &SessionId) {
        self.known.lock().remove(root);
    }
}

/// The state of the workspace before a command.
pub(crate) struct BeforeCommand {
    snapshot: Arc<Snapshot>,
    started_at: u64,
}

impl ToolContext {
    /// Records an event of this call. Returns once it is committed.
    pub(crate) async fn record_event(&self, event: EventKind) -> Result<(), ToolError> {
        let (reply, written) = oneshot::channel();
        let command = ThreadCommand::RecordEvent(self.call.clone(), Box::new(event), reply);
        let closed = || ToolError::failed("the call has ended");
        self.commands.send(command).map_err(|_| closed())?;
        written.await.map_err(|_| closed())
    }

    /// Keeps the content of a file that is about to be replaced by `new`, so that the change can be
    /// undone. Fails if it cannot be kept; the file must not be changed then.
    pub async fn keep_previous(&self, path: &str, new: &[u8]) -> Result<(), ToolError> {
        self.keep(path, Some(new)).await
    }

    /// Keeps the content of a file that is about to be removed, like [`Self::keep_previous`]. A
    /// link is not kept: its target stays.
    pub async fn keep_removed(&self, path: &str) -> Result<(), ToolError> {
        if let Some((dir, name)) = path.rsplit_once('/')
            && !dir.is_empty()
        {
            let dir = self.sandbox.resolve_path(dir).await.path;
            return self.keep_entry(&format!("{dir}/{name}")).await;
        }
        self.keep_entry(path).await
    }

    /// Keeps the content of a file whose directory is no link.
    async fn keep_entry(&self, path: &str) -> Result<(), ToolError> {
        if self.sandbox.resolve_path(path).await.path != path {
            return Ok(());
        }
        self.keep(path, None).await
    }

    /// Records that the changes of a command are unknown, because nobody waits for it.
    pub async fn record_unknown_changes(&self) -> Result<(), ToolError> {
        if self.blobs().is_none() {
            return Ok(());
        }
        self.record_event(EventKind::WorkspaceSnapshot {
            call: self.call.clone(),
            prompt: self.prompt.clone(),
            source: None,
            incomplete: true,
        })
        .await
    }

    /// Records that a file is about to get new content, or to be removed, with its content before.
    async fn keep(&self, path: &str, new: Option<&[u8]>) -> Result<(), ToolError> {
        let Some(blobs) = self.blobs() else {
            return Ok(());
        };
        // A link may point elsewhere later.
        let path = &*self.sandbox.resolve_path(path).await.path;
        let info = match self.sandbox.stat(path).await {
            Ok(info) => Some(info),
            Err(SandboxError::NotFound(_)) => None,
            Err(error) => return Err(ToolError(error.into())),
        };
        let executable = info.as_ref().is_some_and(|info| info.executable);
        let unkept = |error| {
            let message = format!("{path}: cannot keep the previous content: {error}");
            ToolError::failed(message)
        };
        let before = match info {
            None if new.is_none() => return Ok(()),
            None => None,
            // A file that is too long to read is recorded without its content.
            Some(info) => match self.sandbox.read(path).await {
                Ok(bytes) if new == Some(&bytes) => return Ok(()),
                Ok(bytes) => Some(stored(&*blobs, bytes, executable).await.map_err(unkept)?),
                Err(_) => Some(FileContent {
                    size: info.size,
                    hash: None,
                    source: None,
                    offset: 0,
                    executable,
                }),
            },
        };
        let after = match new {
            Some(new) => {
                let after = stored(&*blobs, new.to_vec(), executable).await;
                Some(after.map_err(unkept)?)
            }
            None => None,
        };
        let workspace = self.sandbox.working_dir();
        let relative = |path| relative_path(path, workspace.as_deref());
        let created_dir = match &before {
            None => missing_dir(&*self.sandbox, path).await.map(relative),
            Some(_) => None,
        };
        let change = FileChange {
            path: relative(path),
            before,
            after,
            created_dir,
        };
        self.record_event(EventKind::FilesChanged {
            call: Some(self.call.clone()),
            prompt: Some(self.prompt.clone()),
            changes: vec![change],
            source: None,
            incomplete: false,
        })
        .await
    }

    /// Keeps the state of the workspace before a command. `None` if there is no blob store, or if
    /// the workspace is too large, on another machine or reviewed.
    pub(crate) async fn before_command(&self) -> Result<Option<BeforeCommand>, SandboxError> {
        let Some(blobs) = self.blobs() else {
            return Ok(None);
        };
        // In review mode, a person approves the changes before the workspace has them.
        if self.sandbox.kind() == SandboxKind::Remote || self.sandbox.review().is_some() {
            return Ok(None);
        }
        let started_at = earliest_change();
        let snapshot = self.update_workspace(&*blobs).await.map_err(unkept)?;
        let event = EventKind::WorkspaceSnapshot {
            call: self.call.clone(),
            prompt: self.prompt.clone(),
            source: snapshot.as_ref().and_then(|it| it.source.clone()),
            incomplete: snapshot.is_none(),
        };
        let recorded = self.record_event(event).await;
        recorded.map_err(|error| unkept(error.0.message))?;
        Ok(snapshot.map(|snapshot| BeforeCommand {
            snapshot,
            started_at,
        }))
    }

    /// Records what a command changed. Without a change, an event is needed only if `always`:
    /// where the call may end in a way that leaves open whether the command changed something.
    pub(crate) async fn after_command(
        &self,
        before: BeforeCommand,
        always: bool,
    ) -> Result<(), SandboxError> {
        let Some(blobs) = self.blobs() else {
            return Ok(());
        };
        let after = self.update_workspace(&*blobs).await.map_err(unkept)?;
        let incomplete = after.is_none();
        let (changes, source) = match after {
            Some(after) => (
                before.snapshot.changes(&after, before.started_at),
                after.source.clone(),
            ),
            None => (Vec::new(), None),
        };
        if changes.is_empty() && !incomplete && !always {
            return Ok(());
        }
        let recorded = self.record_event(EventKind::FilesChanged {
            call: Some(self.call.clone()),
            prompt: Some(self.prompt.clone()),
            changes,
            source,
            incomplete,
        });
        recorded.await.map_err(|error| unkept(error.0.message))
    }

    /// Runs work that may change files of the workspace outside of the sandbox, and records which
    /// files it changes, as for a command.
    pub async fn track_changes<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, SandboxError> {
        let is_in_memory = self.sandbox.confinement().files == FileAccess::Memory;
        let before = if is_in_memory {
            None
        } else {
            self.before_command().await?
        };
        let result = work.await;
        if let Some(before) = before {
            self.after_command(before, result.is_err()).await?;
        }
        Ok(result)
    }

    /// Reads the current state of the workspace.
    async fn update_workspace(
        &self,
        blobs: &dyn BlobStore,
    ) -> Result<Option<Arc<Snapshot>>, SnapshotError> {
        let Some(engine) = self.engine.upgrade() else {
            return Ok(None);
        };
        let root = engine.root_of(&self.session);
        let known = engine.workspaces.of(&root);
        // One at a time, so that packs form a chain.
        let mut known = known.lock().await;
        let last = match &*known {
            Some(last) => Arc::clone(last),
            None => Arc::new(last_snapshot(&*engine.store, &root, blobs).await),
        };
        let next = last
            .update(&*self.sandbox, blobs, &self.redactor)
            .await?
            .map(Arc::new);
        *known = next.clone().or(Some(last));
        Ok(next)
    }
}

/// The last state of the workspace that a session recorded. Empty if it cannot be read: then
/// everything is kept again.
async fn last_snapshot(
    store: &dyn SessionStore,
    session: &SessionId,
    blobs: &dyn BlobStore,
) -> Snapshot {
    let source = last_source(store, session).await.ok().flatten();
    match source {
        Some(source) => Snapshot::load(&source, blobs).await.unwrap_or_default(),
        None => Snapshot::default(),
    }
}

async fn last_source(
    store: &dyn SessionStore,
    session: &SessionId,
) -> Result<Option<String>, StoreError> {
    let (mut after, mut last) = (0, None);
    loop {
        let page = store.events(session, after, PAGE).await?;
        let Some(end) = page.last().and_then(|event| event.sequence) else {
            return Ok(last);
        };
        after = end;
        for event in page {
            if let EventKind::WorkspaceSnapshot { source, .. }
            | EventKind::FilesChanged { source, .. } = event.kind
            {
                last = source.or(last);
            }
        }
    }
}

/// The topmost directory of a path that does not exist.
async fn missing_dir<'a>(sandbox: &dyn Sandbox, path: &'a str) -> Option<&'a str> {
    let mut missing = None;
    let above = path.rmatch_indices('/').map(|(end, _)| &path[..end]);
    for dir in above.filter(|dir| !dir.is_empty()) {
        match sandbox.stat(dir).await {
            Err(SandboxError::NotFound(_)) => missing = Some(dir),
            _ => break,
        }
    }
    missing
}

/// Stores the content of a file.
async fn stored(
    blobs: &dyn BlobStore,
    bytes: Vec<u8>,
    executable: bool,
) -> Result<FileContent, crate::blob::BlobError> {
    let size = bytes.len() as u64;
    let hash: Hash = blobs.put(bytes).await?;
    Ok(FileContent {
        size,
        hash: Some(hash.to_hex()),
        source: Some(format!("{SCHEME}{hash}")),
        offset: 0,
        executable,
    })
}

fn unkept(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::unavailable(format_args!(
        "cannot keep the state of the workspace: {error}"
    ))
}
