//! Walks a directory tree with several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ignore::{DirEntry, WalkBuilder, WalkState};
use rye_engine::sandbox::{FileInfo, SandboxError, WalkOptions, WalkResult};

use super::path::{LocalPath, changed, is_executable, modified};

/// Maximum number of threads. More do not make a disk faster.
const MAX_THREADS: usize = 8;

/// Stops a walk when it is dropped.
#[derive(Default)]
pub(super) struct StopOnDrop(Arc<AtomicBool>);

impl StopOnDrop {
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn walk(
    start: &LocalPath,
    walk: &WalkOptions,
    is_stopped: &AtomicBool,
) -> Result<WalkResult, SandboxError> {
    let until = Instant::now() + walk.time_limit;
    let top = start.info()?;
    if !top.is_dir {
        return Ok(WalkResult {
            files: vec![top],
            is_complete: true,
            ..WalkResult::default()
        });
    }
    let (found, is_complete) = (Mutex::default(), AtomicBool::new(true));
    let count = AtomicUsize::new(0);
    builder(start, walk).build_parallel().run(|| {
        let mut batch = Batch {
            result: WalkResult::default(),
            all: &found,
        };
        let (top, is_complete, count) = (&top, &is_complete, &count);
        Box::new(move |entry| {
            if is_stopped.load(Ordering::Relaxed) || Instant::now() >= until {
                is_complete.store(false, Ordering::Relaxed);
                return WalkState::Quit;
            }
            // Skip entries that were removed meanwhile or cannot be read.
            let file = entry.ok().and_then(|entry| info(start, top, &entry));
            if let Some(file) = file {
                if file.is_dir {
                    batch.result.directories.push(file.path);
                    return WalkState::Continue;
                }
                if count.fetch_add(1, Ordering::Relaxed) >= walk.max_files {
                    is_complete.store(false, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                batch.result.files.push(file);
            }
            WalkState::Continue
        })
    });
    let mut found: WalkResult = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    found.is_complete = is_complete.into_inner();
    Ok(found)
}

/// What one thread found, added to the result when the thread ends.
struct Batch<'a> {
    result: WalkResult,
    all: &'a Mutex<WalkResult>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let all = self.all.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        all.files.append(&mut self.result.files);
        all.directories.append(&mut self.result.directories);
    }
}

/// Uses only the ignore files of the workspace, not those of the machine or the user, so that
/// an agent finds the same files everywhere.
fn builder(start: &LocalPath, walk: &WalkOptions) -> WalkBuilder {
    let mut builder = WalkBuilder::new(&start.path);
    let private = Arc::clone(&start.private);
    builder
        .hidden(!walk.hidden)
        .ignore(!walk.ignored)
        .git_ignore(!walk.ignored)
        .parents(!walk.ignored)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .threads(std::thread::available_parallelism().map_or(1, |it| it.get().min(MAX_THREADS)))
        .filter_entry(move |entry| {
            let is_private = || {
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                is_dir
                    && entry
                        .metadata()
                        .is_ok_and(|metadata| private.is_private(&metadata))
            };
            entry.depth() == 0 || (entry.file_name() != ".git" && !is_private())
        });
    builder
}

/// The information about an entry, or `None` if it is neither a file nor a directory below the
/// first one.
fn info(start: &LocalPath, top: &FileInfo, entry: &DirEntry) -> Option<FileInfo> {
    let kind = entry.file_type()?;
    if !kind.is_file() && (!kind.is_dir() || entry.depth() == 0) {
        return None;
    }
    let metadata = entry.metadata().ok()?;
    let below = entry.path().strip_prefix(&start.path).ok()?;
    let below = below.to_string_lossy();
    let path = match top.path.as_str() {
        "" => below.into_owned(),
        "/" => format!("/{below}"),
        parent => format!("{parent}/{below}"),
    };
    Some(FileInfo {
        path,
        is_dir: kind.is_dir(),
        size: metadata.len(),
        modified: modified(&metadata),
        changed: changed(&metadata),
        executable: is_executable(&metadata),
    })
}
