//! Waits for files to change, with inotify.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde::Serialize;
use tokio::net::unix::pipe::Receiver;

use crate::error::{PathContext, PathError};
use crate::time::Deadline;

/// Error of watching paths.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The list of paths is empty.
    #[error("no path to watch was given")]
    NoPaths,
    /// The directory that contains the path is missing or not readable.
    #[error(transparent)]
    Path(#[from] PathError),
    /// inotify failed.
    #[error("cannot watch files: {0}")]
    Io(#[from] io::Error),
}

/// A change of a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The path as the caller gave it; for a directory, the entry in it that changed.
    pub path: PathBuf,
    /// Whether the path was created, modified or removed.
    pub kind: ChangeKind,
}

/// How a path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Created, or another file was moved to this path.
    Created,
    /// Content or mode changed.
    Modified,
    /// Removed or moved away.
    Removed,
}

/// Waits until one of the paths changes. Returns `None` after `timeout`.
///
/// A path need not exist yet, but its directory must. A file that is replaced by a rename, as
/// editors do, counts as changed, and so does a link whose target changes. A directory changes
/// when one of its entries does, not when something deeper does. inotify does not report
/// writes through another hard link, renames of a parent directory, or changes made by another
/// machine on a network file system.
pub fn wait_for_change(
    paths: &[PathBuf],
    timeout: Option<Duration>,
) -> Result<Option<Change>, WatchError> {
    Watch::new(paths)?.wait(timeout)
}

/// Waits until `check` returns a value. Returns `None` after `timeout`. `check` runs once after
/// the watches are installed and again after every change of the paths, so no change is missed
/// and there is no polling.
///
/// Detects the same changes as [`wait_for_change`]. Cancel safe.
///
/// # Panics
///
/// Outside a tokio runtime whose I/O and time are enabled.
pub async fn wait_until<T>(
    paths: &[PathBuf],
    timeout: Option<Duration>,
    mut check: impl FnMut() -> Option<T>,
) -> Result<Option<T>, WatchError> {
    let watch = Watch::new(paths)?;
    // An inotify descriptor is read like a pipe. The events themselves are not needed.
    let changes = Receiver::from_owned_fd_unchecked(watch.inotify)?;
    let found = async {
        loop {
            if let Some(found) = check() {
                return Ok(found);
            }
            changes.readable().await?;
            match changes.try_read(&mut [0; 4096]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Err(WatchError::from(error));
                }
                _ => {}
            }
        }
    };
    match timeout {
        None => found.await.map(Some),
        Some(timeout) => match tokio::time::timeout(timeout, found).await {
            Ok(found) => found.map(Some),
            Err(_) => Ok(None),
        },
    }
}

/// Paths whose changes are collected from its creation on. A caller that creates it, looks at the
/// paths and then waits misses no change. Detects the same changes as [`wait_for_change`].
// Watches files through their directories: a watch on a file itself would stay with the old
// inode when the file is replaced.
#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
    /// By watch descriptor.
    dirs: BTreeMap<i32, WatchedDir>,
}

#[derive(Debug, Default)]
struct WatchedDir {
    path: PathBuf,
    /// Every entry is watched.
    all: bool,
    /// Watched entries, each with the path that the caller gave.
    names: BTreeMap<OsString, PathBuf>,
}

impl Watch {
    /// Starts to watch the paths.
    pub fn new(paths: &[PathBuf]) -> Result<Self, WatchError> {
        if paths.is_empty() {
            return Err(WatchError::NoPaths);
        }
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let mut watch = Self {
            inotify: inotify::init(flags).map_err(io::Error::from)?,
            dirs: BTreeMap::new(),
        };
        for path in paths {
            if path.is_dir() {
                watch.add(path)?.all = true;
                continue;
            }
            watch.add_file(path, path)?;
            if path.is_symlink()
                && let Ok(target) = path.canonicalize()
            {
                watch.add_file(&target, path)?;
            }
        }
        Ok(watch)
    }

    /// Watches a file; its changes are reported with the path `given`.
    fn add_file(&mut self, file: &Path, given: &Path) -> Result<(), PathError> {
        let dir = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let name = file.file_name().unwrap_or_default().to_owned();
        self.add(dir)?.names.insert(name, given.to_owned());
        Ok(())
    }

    fn add(&mut self, dir: &Path) -> Result<&mut WatchedDir, PathError> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let number = inotify::add_watch(&self.inotify, dir, flags).at("watch", dir)?;
        let entry = self.dirs.entry(number).or_default();
        dir.clone_into(&mut entry.path);
        Ok(entry)
    }

    /// Waits for a change since the creation or the last call. Returns `None` after `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Change>, WatchError> {
        let deadline = Deadline::after(timeout);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event
                        .file_name()
                        .map(|name| OsStr::from_bytes(name.to_bytes()));
                    if let Some(change) = self.change(event.wd(), event.events(), name) {
                        return Ok(Some(change));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => {
                    if deadline.has_passed() {
                        return Ok(None);
                    }
                    let left = deadline.remaining_up_to(Duration::from_hours(1));
                    let left = Timespec::try_from(left).unwrap_or_default();
                    let mut watched = [PollFd::new(&self.inotify, PollFlags::IN)];
                    let _ = poll(&mut watched, Some(&left));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    fn change(&self, number: i32, events: ReadFlags, name: Option<&OsStr>) -> Option<Change> {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.overflow_change();
        }
        let dir = self.dirs.get(&number)?;
        let removed = ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        let created = ReadFlags::CREATE | ReadFlags::MOVED_TO;
        let itself =
            ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        let path = match name {
            _ if events.intersects(itself) => dir.path.clone(),
            Some(name) => match dir.names.get(name) {
                Some(path) => path.clone(),
                None if dir.all => dir.path.join(name),
                None => return None,
            },
            None if dir.all => dir.path.clone(),
            None => return None,
        };
        let kind = if events.intersects(removed | itself) {
            ChangeKind::Removed
        } else if events.intersects(created) {
            ChangeKind::Created
        } else {
            ChangeKind::Modified
        };
        Some(Change { path, kind })
    }

    /// Reports a change of the first path: the kernel's event queue overflowed, so any path
    /// may have changed.
    fn overflow_change(&self) -> Option<Change> {
        let dir = self.dirs.values().next()?;
        let path = dir.names.values().next().unwrap_or(&dir.path);
        Some(Change {
            path: path.clone(),
            kind: ChangeKind::Modified,
        })
    }
}
