//! Compares the files of a session with the record, and undoes changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use lillux::Hash;
use parking_lot::Mutex;
use rye_protocol::{EventKind, FileChange, FileContent, SessionId};

use super::{ChangedFile, is_same};
use crate::blob::{BlobStore, SCHEME, parse_address};
use crate::engine::Engine;
use crate::sandbox::{FileInfo, ResolvedPath, Sandbox, SandboxError};
use crate::store::StoreError;

/// How many files are read or written at once.
const PARALLEL: usize = 32;
/// How many files are compared at once.
const BATCH: usize = 256;
/// Maximum size of a file that is read together with others, in bytes.
const MAX_BATCHED: u64 = 256 * 1024;
/// Maximum size of a file that is compared, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Why changes cannot be read or undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The store or the sandbox failed.
    #[error(transparent)]
    Store(StoreError),
    /// Kept content cannot be read or stored.
    #[error("{0}")]
    Content(String),
    /// The files were in memory and are gone.
    #[error("the files of session {} were in memory and are gone", .0.short())]
    Gone(SessionId),
}

/// A changed file, compared with the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedFile {
    /// What the session changed.
    pub file: ChangedFile,
    /// How the file is now.
    pub status: FileStatus,
    /// The file now; none if it does not exist.
    pub current: Option<FileContent>,
    /// Where the path leads; none if that is unknown.
    resolved: Option<ResolvedPath>,
}

impl ComparedFile {
    /// A change of a file that cannot be read now.
    pub fn unreadable(file: ChangedFile) -> Self {
        Self {
            file,
            status: FileStatus::Conflict(Conflict::Unreadable),
            current: None,
            resolved: None,
        }
    }
}

/// How a file is now, compared with the changes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStatus {
    /// As the session left it.
    Unchanged,
    /// As it was before.
    Restored,
    /// Undoing would lose something, or is impossible.
    Conflict(Conflict),
}

/// Why a change is not undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Conflict {
    /// The file changed after the session did.
    ChangedSince,
    /// Something else changed the file between the changes of the session.
    ChangedBetween,
    /// The previous content was not kept, because it was too long.
    NotKept,
    /// The path leads to another file than at the time of the change, through a link.
    Link,
    /// The file cannot be read now.
    Unreadable,
}

impl Conflict {
    /// Whether the user can choose to undo the change anyway.
    pub fn can_be_forced(self) -> bool {
        matches!(self, Self::ChangedSince | Self::ChangedBetween)
    }
}

/// Result of undoing changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoOutcome {
    /// Files that are now as they were before.
    pub restored: Vec<String>,
    /// Files that could not be written.
    pub failed: Vec<UndoFailure>,
}

/// A file that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoFailure {
    /// The file.
    pub path: String,
    /// Why it could not be written.
    pub error: SandboxError,
}

impl Engine {
    /// Compares changed files with the workspace of a session.
    pub async fn compare_files(
        &self,
        session: &SessionId,
        files: Vec<ChangedFile>,
    ) -> Result<Vec<ComparedFile>, ChangeError> {
        let sandbox = self.files_of(session).await?;
        Ok(compare(files, &*sandbox).await)
    }

    /// The kept content of a file.
    pub async fn file_content(&self, content: &FileContent) -> Result<Vec<u8>, ChangeError> {
        self.contents().read(content).await
    }

    /// Reads the kept content of several files, and each blob only once.
    pub fn contents(&self) -> Contents {
        Contents {
            store: self.blob_store(),
            blobs: Mutex::default(),
        }
    }

    /// Undoes changes: first records it, with the content that is replaced, and then restores each
    /// file. Leaves files alone that are restored already, and those in conflict unless `force` is
    /// set. After a crash, compare and call it again.
    pub async fn undo_changes(
        &self,
        session: &SessionId,
        files: &[ComparedFile],
        force: bool,
    ) -> Result<UndoOutcome, ChangeError> {
        let is_selected = |it: &&ComparedFile| match it.status {
            FileStatus::Unchanged => true,
            FileStatus::Restored => false,
            FileStatus::Conflict(conflict) => force && conflict.can_be_forced(),
        };
        let files: Vec<_> = files.iter().filter(is_selected).collect();
        if files.is_empty() {
            return Ok(UndoOutcome::default());
        }
        let sandbox = self.files_of(session).await?;
        let contents = self.contents();
        // Everything must be readable before anything is written.
        let mut targets = BTreeMap::new();
        for it in &files {
            if let Some(content) = &it.file.before {
                targets.insert(&*it.file.path, contents.read(content).await?);
            }
        }
        let changes = self.undo_record(&files, &*sandbox).await?;
        let event = EventKind::FilesChanged {
            call: None,
            prompt: None,
            changes,
            source: None,
            incomplete: false,
        };
        let paths = files.iter().map(|it| it.file.path.clone()).collect();
        self.record_undo(session, event, paths).await?;
        let (sandbox, targets) = (&*sandbox, &targets);
        let created = created_dirs(&files);
        let restored = stream::iter(files).map(|it| async move {
            let bytes = targets.get(&*it.file.path).map(Vec::as_slice);
            let outcome = restore(it, bytes, sandbox).await;
            (it.file.path.clone(), outcome)
        });
        let restored: Vec<_> = restored.buffered(PARALLEL).collect().await;
        let mut outcome = UndoOutcome::default();
        for (path, restored) in restored {
            match restored {
                Ok(()) => outcome.restored.push(path),
                Err(error) => outcome.failed.push(UndoFailure { path, error }),
            }
        }
        for dir in created.iter().rev() {
            // It stays if it has other content.
            let _ = sandbox.rmdir(dir).await;
        }
        Ok(outcome)
    }

    async fn files_of(&self, session: &SessionId) -> Result<Arc<dyn Sandbox>, ChangeError> {
        let sandbox = self.sandbox_with_files(session).await?;
        sandbox.ok_or_else(|| ChangeError::Gone(session.clone()))
    }

    /// What undoing changes. Content that only exists in the workspace is kept first.
    async fn undo_record(
        &self,
        files: &[&ComparedFile],
        sandbox: &dyn Sandbox,
    ) -> Result<Vec<FileChange>, ChangeError> {
        let mut changes: Vec<_> = files
            .iter()
            .map(|it| FileChange {
                path: it.file.path.clone(),
                before: match it.status {
                    FileStatus::Unchanged => it.file.after.clone(),
                    _ => it.current.clone(),
                },
                after: it.file.before.clone(),
                created_dir: None,
            })
            .collect();
        let mut pack = Vec::new();
        let mut packed = Vec::new();
        for (number, change) in changes.iter_mut().enumerate() {
            let Some(content) = change.before.as_mut().filter(|it| it.source.is_none()) else {
                continue;
            };
            let bytes = sandbox.read(&change.path).await;
            let bytes = bytes.map_err(|error| ChangeError::Content(error.to_string()))?;
            content.size = bytes.len() as u64;
            content.hash = Some(Hash::digest(&bytes).to_hex());
            content.offset = pack.len() as u64;
            pack.extend(bytes);
            packed.push(number);
        }
        if !packed.is_empty() {
            let source = format!("{SCHEME}{}", self.store_blob(pack).await?);
            for number in packed {
                let before = changes.get_mut(number).and_then(|it| it.before.as_mut());
                if let Some(content) = before {
                    content.source = Some(source.clone());
                }
            }
        }
        Ok(changes)
    }
}

/// The directories that were created for files, each after those above it.
fn created_dirs(files: &[&ComparedFile]) -> BTreeSet<String> {
    let mut dirs = BTreeSet::new();
    for file in files.iter().map(|it| &it.file) {
        let Some(top) = &file.created_dir else {
            continue;
        };
        let above = file
            .path
            .match_indices('/')
            .map(|(end, _)| &file.path[..end]);
        dirs.extend(
            above
                .filter(|dir| dir.len() >= top.len())
                .map(str::to_owned),
        );
    }
    dirs
}

/// Compares changed files with the workspace.
async fn compare(files: Vec<ChangedFile>, sandbox: &dyn Sandbox) -> Vec<ComparedFile> {
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let resolved = stream::iter(&paths).map(|path| sandbox.resolve_path(path));
    let resolved: Vec<_> = resolved.buffered(PARALLEL).collect().await;
    let current = read_current(&paths, sandbox).await;
    let all = files.into_iter().zip(resolved).zip(current);
    all.map(|((file, resolved), current)| {
        let status = match &current {
            _ if resolved.path != file.path => FileStatus::Conflict(Conflict::Link),
            Ok(current) => status(&file, current.as_ref()),
            Err(_) => FileStatus::Conflict(Conflict::Unreadable),
        };
        ComparedFile {
            file,
            status,
            current: current.ok().flatten(),
            resolved: Some(resolved),
        }
    })
    .collect()
}

/// How a file is, given its content.
fn status(file: &ChangedFile, current: Option<&FileContent>) -> FileStatus {
    let not_kept = file.before.as_ref().is_some_and(|it| it.source.is_none());
    if is_same(current, file.before.as_ref()) {
        FileStatus::Restored
    } else if not_kept {
        FileStatus::Conflict(Conflict::NotKept)
    } else if !is_same(current, file.after.as_ref()) {
        FileStatus::Conflict(Conflict::ChangedSince)
    } else if file.is_interleaved {
        FileStatus::Conflict(Conflict::ChangedBetween)
    } else {
        FileStatus::Unchanged
    }
}

/// The files as they are now; none if a file does not exist.
async fn read_current(
    paths: &[String],
    sandbox: &dyn Sandbox,
) -> Vec<Result<Option<FileContent>, SandboxError>> {
    let mut all = Vec::with_capacity(paths.len());
    for paths in paths.chunks(BATCH) {
        let infos = sandbox.stat_many(paths).await;
        let is_read = |(_, info): &(&String, &Result<FileInfo, SandboxError>)| {
            info.as_ref()
                .is_ok_and(|it| !it.is_dir && it.size <= MAX_BATCHED)
        };
        let to_read = paths.iter().zip(&infos).filter(is_read);
        let to_read: Vec<_> = to_read.map(|(path, _)| path.clone()).collect();
        let read = sandbox.read_many(&to_read, MAX_BATCHED).await;
        let mut read: HashMap<_, _> = to_read.into_iter().zip(read).collect();
        for (path, info) in paths.iter().zip(infos) {
            let mut bytes = read.remove(path);
            if let Ok(info) = &info
                && bytes.is_none()
                && !info.is_dir
                && info.size <= MAX_FILE
            {
                bytes = Some(sandbox.read(path).await);
            }
            let content = match (info, bytes) {
                (Err(SandboxError::NotFound(_)), _) => Ok(None),
                (Err(error), _) | (Ok(_), Some(Err(error))) => Err(error),
                (Ok(info), bytes) => Ok(Some(FileContent {
                    size: info.size,
                    hash: bytes
                        .and_then(Result::ok)
                        .map(|it| Hash::digest(it).to_hex()),
                    source: None,
                    offset: 0,
                    executable: info.executable,
                })),
            };
            all.push(content);
        }
    }
    all
}

/// Restores a file.
async fn restore(
    it: &ComparedFile,
    bytes: Option<&[u8]>,
    sandbox: &dyn Sandbox,
) -> Result<(), SandboxError> {
    let path = &*it.file.path;
    let Some(bytes) = bytes else {
        return match sandbox.rm(path).await {
            Err(SandboxError::NotFound(_)) => Ok(()),
            removed => removed,
        };
    };
    let changed = || SandboxError::PathChanged(path.to_owned());
    let resolved = it.resolved.as_ref().ok_or_else(changed)?;
    sandbox.write_resolved(path, resolved, bytes).await?;
    let executable = it.file.before.as_ref().is_some_and(|it| it.executable);
    let was_executable = it.current.as_ref().is_some_and(|it| it.executable);
    if executable != was_executable {
        sandbox.set_executable(path, executable).await?;
    }
    Ok(())
}

/// Reads the kept content of files. Several files can share a blob, which is read once.
#[derive(Debug)]
pub struct Contents {
    store: Option<Arc<dyn BlobStore>>,
    blobs: Mutex<HashMap<Hash, Arc<Vec<u8>>>>,
}

impl Contents {
    /// The content of a file; an error if it was not kept, is missing or damaged.
    pub async fn read(&self, content: &FileContent) -> Result<Vec<u8>, ChangeError> {
        let missing = || {
            let hash = content.hash.as_deref().unwrap_or("of a long file");
            ChangeError::Content(format!("the content {hash} is not on this machine"))
        };
        let hash = content.source.as_deref().and_then(parse_address);
        let hash = hash.ok_or_else(missing)?;
        let known = self.blobs.lock().get(&hash).map(Arc::clone);
        let blob = if let Some(blob) = known {
            blob
        } else {
            let store = self.store.as_ref().ok_or_else(missing)?;
            let blob = Arc::new(store.get(&hash).await?.ok_or_else(missing)?);
            self.blobs.lock().insert(hash, Arc::clone(&blob));
            blob
        };
        let start = usize::try_from(content.offset).unwrap_or(usize::MAX);
        let size = usize::try_from(content.size).unwrap_or(usize::MAX);
        let bytes = blob.get(start..).and_then(|rest| rest.get(..size));
        let bytes = bytes.filter(|it| content.hash == Some(Hash::digest(it).to_hex()));
        let damaged = || ChangeError::Content(format!("the content in blob {hash} is damaged"));
        Ok(bytes.ok_or_else(damaged)?.to_vec())
    }
}
