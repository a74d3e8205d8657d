//! A tree of files of this machine, walked by as many threads as it has cores.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ignore::{DirEntry, WalkBuilder, WalkState};
use rye_engine::sandbox::{FileInfo, SandboxError, WalkOptions, WalkResult};

use super::place::{Place, modified};

/// More threads than this do not make a disk quicker.
const THREADS: usize = 8;

/// Ends a walk when it is dropped.
#[derive(Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn walk(
    place: &Place,
    walk: &WalkOptions,
    stopped: &AtomicBool,
) -> Result<WalkResult, SandboxError> {
    let until = Instant::now() + walk.time_limit;
    let top = place.info()?;
    if !top.is_dir {
        let (files, is_complete) = (vec![top], true);
        return Ok(WalkResult { files, is_complete });
    }
    let (found, is_complete) = (Mutex::new(Vec::new()), AtomicBool::new(true));
    let count = AtomicUsize::new(0);
    builder(place, walk).build_parallel().run(|| {
        let mut batch = Batch {
            files: Vec::new(),
            all: &found,
        };
        let (top, is_complete, count) = (&top, &is_complete, &count);
        Box::new(move |entry| {
            if stopped.load(Ordering::Relaxed) || Instant::now() >= until {
                is_complete.store(false, Ordering::Relaxed);
                return WalkState::Quit;
            }
            // One that is gone meanwhile, or may not be read, is not there.
            let file = entry.ok().and_then(|entry| info(place, top, &entry));
            if let Some(file) = file {
                if count.fetch_add(1, Ordering::Relaxed) >= walk.max_files {
                    is_complete.store(false, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                batch.files.push(file);
            }
            WalkState::Continue
        })
    });
    let mut files = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    files.sort_unstable_by(|a: &FileInfo, b| a.path.cmp(&b.path));
    let is_complete = is_complete.into_inner();
    Ok(WalkResult { files, is_complete })
}

/// What one thread found, added to the rest when it is done.
struct Batch<'a> {
    files: Vec<FileInfo>,
    all: &'a Mutex<Vec<FileInfo>>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let all = self.all.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        all.append(&mut self.files);
    }
}

/// The rules are those of the workspace: nothing that only this machine or this user
/// leaves out, so that an agent finds the same everywhere.
fn builder(place: &Place, walk: &WalkOptions) -> WalkBuilder {
    let mut builder = WalkBuilder::new(&place.path);
    let private = Arc::clone(&place.private);
    builder
        .hidden(!walk.hidden)
        .ignore(!walk.ignored)
        .git_ignore(!walk.ignored)
        .parents(!walk.ignored)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .threads(std::thread::available_parallelism().map_or(1, |it| it.get().min(THREADS)))
        .filter_entry(move |entry| {
            let is_private = || {
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                is_dir
                    && entry
                        .metadata()
                        .is_ok_and(|about| private.is_private(&about))
            };
            entry.depth() == 0 || (entry.file_name() != ".git" && !is_private())
        });
    builder
}

/// What is known of a file; none of what is no file.
fn info(place: &Place, top: &FileInfo, entry: &DirEntry) -> Option<FileInfo> {
    if !entry.file_type().is_some_and(|kind| kind.is_file()) {
        return None;
    }
    let about = entry.metadata().ok()?;
    let below = entry.path().strip_prefix(&place.path).ok()?;
    let below = below.to_string_lossy();
    let path = match top.path.as_str() {
        "" => below.into_owned(),
        "/" => format!("/{below}"),
        above => format!("{above}/{below}"),
    };
    Some(FileInfo {
        path,
        is_dir: false,
        size: about.len(),
        modified: modified(&about),
    })
}
