//! The state of a workspace: its files with their content, kept in packs.
//!
//! A pack is one blob: a line of JSON, the [`Header`], and then the content of the files that the
//! previous pack of the session does not have. One blob for many files, because each blob costs
//! several writes to disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lillux::Hash;
use lillux::redact::Redactor;
use rye_protocol::{FileChange, FileContent};
use serde::{Deserialize, Serialize};

use crate::blob::{BlobStore, SCHEME, parse_address};
use crate::sandbox::{FileInfo, Sandbox, SandboxError, WalkOptions};

/// Maximum number of files of a workspace whose changes are found.
const MAX_FILES: usize = 20_000;
/// Maximum duration of listing them.
const MAX_WALK: Duration = Duration::from_secs(5);
/// Maximum size of a file whose content is kept, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Maximum size of all content that is kept of a workspace, in bytes.
const MAX_TOTAL: u64 = 64 * 1024 * 1024;
/// Maximum size of the files that are read at once, in bytes.
const MAX_BATCH: u64 = 8 * 1024 * 1024;
/// Number of packs after which a pack repeats the list of all files.
const MAX_CHAIN: usize = 32;
/// How much older than the time of day the times of the file system can be. A file that changed
/// this recently can change again without a visible difference.
pub(super) const CLOCK_STEP_NANOS: u64 = 50_000_000;

/// The first line of a pack.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Header {
    /// The previous pack; this one has only differences to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    files: Vec<PackedFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PackedFile {
    path: String,
    modified: u64,
    changed: u64,
    /// Without source if the content is in this pack; the offset then counts from its first byte
    /// after the header.
    content: FileContent,
}

/// A file of a workspace.
#[derive(Debug, Clone)]
struct KnownFile {
    modified: u64,
    changed: u64,
    content: FileContent,
    /// Whether it changed so recently that its times may not show the next change.
    is_recent: bool,
}

impl KnownFile {
    /// Whether a file on disk is certainly still this one.
    fn is_unchanged(&self, info: &FileInfo) -> bool {
        !self.is_recent
            && self.modified == info.modified
            && self.changed == info.changed
            && self.content.size == info.size
            && self.content.executable == info.executable
    }

    /// Whether the file on disk is one whose content was not kept, and shows no change.
    fn is_skipped(&self, info: &FileInfo) -> bool {
        self.content.hash.is_none()
            && self.modified == info.modified
            && self.changed == info.changed
            && self.content.size == info.size
            && self.content.executable == info.executable
    }

    /// Whether nothing shows that the other one differs.
    fn is_same(&self, other: &Self) -> bool {
        if self.content.hash.is_some() || other.content.hash.is_some() {
            return self.content.is_same(&other.content);
        }
        self.content == other.content
            && self.modified == other.modified
            && self.changed == other.changed
    }
}

/// The state of a workspace.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// The last pack.
    pub(super) source: Option<String>,
    /// Number of packs since the one that lists all files.
    chain: usize,
    files: BTreeMap<String, KnownFile>,
    /// The directories; none if the snapshot was loaded, because packs have only files.
    directories: Option<BTreeSet<String>>,
}

/// Why a snapshot failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Blob(#[from] crate::blob::BlobError),
    #[error("the state of the workspace in {0} is damaged")]
    Damaged(String),
}

/// The time of day in nanoseconds, less what the times of the file system can be behind.
pub(super) fn earliest_change() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = u64::try_from(now.unwrap_or_default().as_nanos());
    now.unwrap_or(u64::MAX).saturating_sub(CLOCK_STEP_NANOS)
}

impl Snapshot {
    /// Reads what changed since this snapshot, and keeps it. `None` if there are too many files.
    pub(super) async fn update(
        &self,
        sandbox: &dyn Sandbox,
        blobs: &dyn BlobStore,
        redactor: &Redactor,
    ) -> Result<Option<Self>, SnapshotError> {
        let recent = earliest_change();
        let Some((found, directories)) = list(sandbox, &self.files).await? else {
            return Ok(None);
        };
        let mut next = Self {
            source: self.source.clone(),
            chain: self.chain,
            files: BTreeMap::new(),
            directories: Some(directories),
        };
        let mut to_read = Vec::new();
        for info in found {
            match self.files.get(&info.path) {
                Some(known) if known.is_unchanged(&info) || known.is_skipped(&info) => {
                    next.files.insert(info.path, known.clone());
                }
                _ => to_read.push(info),
            }
        }
        let mut content = self
            .read(&mut next, to_read, recent, (sandbox, redactor))
            .await?;
        let removed = self.files.keys().filter(|it| !next.files.contains_key(*it));
        let removed: Vec<_> = removed.cloned().collect();
        if content.paths.is_empty() && removed.is_empty() {
            return Ok(Some(next));
        }
        let repeats_all = self.chain >= MAX_CHAIN;
        let listed = next.files.iter();
        let listed = listed.filter(|(path, _)| repeats_all || content.paths.contains(*path));
        let header = Header {
            parent: self.source.clone().filter(|_| !repeats_all),
            files: listed.map(|(path, file)| packed(path, file)).collect(),
            removed: if repeats_all { Vec::new() } else { removed },
        };
        let mut pack = serde_json::to_vec(&header).unwrap_or_default();
        pack.push(b'\n');
        let start = pack.len() as u64;
        pack.append(&mut content.bytes);
        let source = format!("{SCHEME}{}", blobs.put(pack).await?);
        for path in &content.paths {
            if let Some(file) = next.files.get_mut(path)
                && file.content.hash.is_some()
                && file.content.source.is_none()
            {
                file.content.source = Some(source.clone());
                file.content.offset += start;
            }
        }
        next.source = Some(source);
        next.chain = if repeats_all { 0 } else { self.chain + 1 };
        Ok(Some(next))
    }

    /// Reads files and adds them to `next`. Returns the content that is new.
    async fn read(
        &self,
        next: &mut Self,
        mut to_read: Vec<FileInfo>,
        recent: u64,
        (sandbox, redactor): (&dyn Sandbox, &Redactor),
    ) -> Result<NewContent, SnapshotError> {
        let kept = |file: &KnownFile| file.content.hash.as_ref().map_or(0, |_| file.content.size);
        let mut total: u64 = next.files.values().map(kept).sum();
        // If not everything fits, small files are more likely to be written by hand.
        to_read.sort_by_key(|info| info.size);
        let mut new = NewContent::default();
        let mut rest = to_read.into_iter().peekable();
        while let Some(first) = rest.next() {
            let mut size = first.size;
            let mut batch = vec![first];
            while let Some(info) = rest.next_if(|info| size + info.size <= MAX_BATCH) {
                size += info.size;
                batch.push(info);
            }
            let is_kept = |info: &FileInfo, total: u64| {
                info.size <= MAX_FILE
                    && !is_dotenv(&info.path)
                    && total.saturating_add(info.size) <= MAX_TOTAL
            };
            let mut planned = total;
            let paths: Vec<_> = batch
                .iter()
                .filter(|info| {
                    let fits = is_kept(info, planned);
                    planned += if fits { info.size } else { 0 };
                    fits
                })
                .map(|info| info.path.clone())
                .collect();
            let read = sandbox.read_many(&paths, MAX_FILE).await;
            let mut bytes: BTreeMap<_, _> = paths.into_iter().zip(read).collect();
            for info in batch {
                let known = self.files.get(&info.path);
                let mut file = KnownFile {
                    modified: info.modified,
                    changed: info.changed,
                    content: FileContent {
                        size: info.size,
                        hash: None,
                        source: None,
                        offset: 0,
                        executable: info.executable,
                    },
                    is_recent: info.changed >= recent,
                };
                match bytes.remove(&info.path) {
                    // A copy of a secret must not outlive the file.
                    Some(Ok(bytes)) if has_secret(&bytes, redactor) => {}
                    Some(Ok(bytes)) => {
                        file.content.size = bytes.len() as u64;
                        file.content.hash = Some(Hash::digest(&bytes).to_hex());
                        total += file.content.size;
                        let same = known.filter(|it| it.content.hash == file.content.hash);
                        if let Some(known) = same {
                            file.content.source.clone_from(&known.content.source);
                            file.content.offset = known.content.offset;
                        } else {
                            file.content.offset = new.bytes.len() as u64;
                            new.bytes.extend(bytes);
                        }
                    }
                    // It was removed meanwhile.
                    Some(Err(SandboxError::NotFound(_))) => continue,
                    // Too long, or it cannot be read.
                    Some(Err(_)) | None => {}
                }
                if known.is_none_or(|known| !known.is_same(&file)) {
                    new.paths.insert(info.path.clone());
                }
                next.files.insert(info.path, file);
            }
        }
        Ok(new)
    }

    /// Loads the snapshot whose last pack is `source`.
    pub(super) async fn load(source: &str, blobs: &dyn BlobStore) -> Result<Self, SnapshotError> {
        let mut packs = Vec::new();
        let mut next = Some(source.to_owned());
        while let Some(source) = next.take() {
            let damaged = || SnapshotError::Damaged(source.clone());
            let hash = parse_address(&source).ok_or_else(damaged)?;
            let pack = blobs.get(&hash).await?.ok_or_else(damaged)?;
            let end = pack.iter().position(|byte| *byte == b'\n');
            let end = end
                .filter(|_| packs.len() <= MAX_CHAIN)
                .ok_or_else(damaged)?;
            let header: Header = serde_json::from_slice(&pack[..end]).map_err(|_| damaged())?;
            next.clone_from(&header.parent);
            packs.push((source, header, end as u64 + 1));
        }
        let mut snapshot = Self {
            source: Some(source.to_owned()),
            chain: packs.len(),
            ..Self::default()
        };
        for (source, header, start) in packs.into_iter().rev() {
            for path in &header.removed {
                snapshot.files.remove(path);
            }
            for PackedFile {
                path,
                modified,
                changed,
                mut content,
            } in header.files
            {
                if content.hash.is_some() && content.source.is_none() {
                    content.source = Some(source.clone());
                    content.offset += start;
                }
                let file = KnownFile {
                    modified,
                    changed,
                    content,
                    // The file may have changed since in the same moment.
                    is_recent: true,
                };
                snapshot.files.insert(path, file);
            }
        }
        Ok(snapshot)
    }

    /// The content of a file; none if it did not exist.
    pub(super) fn content(&self, path: &str) -> Option<&FileContent> {
        self.files.get(path).map(|file| &file.content)
    }

    /// What changed between this snapshot and a later one. A file that appeared counts only if it
    /// changed after `since`: it may have been there, but ignored.
    pub(super) fn changes(&self, later: &Self, since: u64) -> Vec<FileChange> {
        let paths: BTreeSet<_> = self.files.keys().chain(later.files.keys()).collect();
        let changes = paths.into_iter().filter_map(|path| {
            let (before, after) = (self.files.get(path), later.files.get(path));
            let is_change = match (before, after) {
                (Some(before), Some(after)) => !before.is_same(after),
                (None, Some(after)) => after.changed == 0 || after.changed >= since,
                _ => true,
            };
            let content = |file: Option<&KnownFile>| file.map(|it| it.content.clone());
            is_change.then(|| FileChange {
                path: path.clone(),
                before: content(before),
                after: content(after),
                created_dir: before.is_none().then(|| self.missing_dir(path)).flatten(),
            })
        });
        changes.collect()
    }

    /// The topmost directory of a file that does not exist in this snapshot.
    fn missing_dir(&self, path: &str) -> Option<String> {
        let known = self.directories.as_ref()?;
        let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
        above.find(|dir| !known.contains(*dir)).map(str::to_owned)
    }
}

/// Content that was read.
#[derive(Default)]
struct NewContent {
    /// Files that differ from the previous snapshot.
    paths: BTreeSet<String>,
    bytes: Vec<u8>,
}

/// Whether a file is one in which people keep secrets.
fn is_dotenv(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == ".env" || name.starts_with(".env.")
}

/// Whether a content contains a secret that Rye knows.
fn has_secret(bytes: &[u8], redactor: &Redactor) -> bool {
    let text = String::from_utf8_lossy(bytes);
    redactor.redact(&text) != text
}

fn packed(path: &str, file: &KnownFile) -> PackedFile {
    PackedFile {
        path: path.to_owned(),
        modified: file.modified,
        changed: file.changed,
        content: file.content.clone(),
    }
}

/// The files and directories of a workspace except ignored ones. A known file that is not listed may have become
/// an ignored one. `None` if there are too many.
async fn list(
    sandbox: &dyn Sandbox,
    known: &BTreeMap<String, KnownFile>,
) -> Result<Option<(Vec<FileInfo>, BTreeSet<String>)>, SandboxError> {
    let options = WalkOptions {
        path: String::new(),
        hidden: true,
        ignored: false,
        max_files: MAX_FILES,
        time_limit: MAX_WALK,
    };
    let walk = sandbox.walk(&options).await?;
    if !walk.is_complete {
        return Ok(None);
    }
    let mut files = walk.files;
    let listed: BTreeSet<_> = files.iter().map(|file| file.path.clone()).collect();
    for path in known.keys().filter(|path| !listed.contains(*path)) {
        match sandbox.stat(path).await {
            Ok(info) if !info.is_dir => files.push(FileInfo {
                path: path.clone(),
                ..info
            }),
            _ => {}
        }
    }
    Ok(Some((files, walk.directories.into_iter().collect())))
}
