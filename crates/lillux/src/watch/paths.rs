//! Waiting for files to change, by inotify.

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

use crate::error::{At, PathError};
use crate::time::Deadline;

/// Why a path could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Nothing was named.
    #[error("there is nothing to watch")]
    Nothing,
    /// The folder that holds the path is missing or not readable.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The operating system's watching failed.
    #[error("cannot watch files: {0}")]
    Io(#[from] io::Error),
}

/// What happened to a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The path as it was given; for a folder, what changed within it.
    pub path: PathBuf,
    /// What happened.
    pub kind: ChangeKind,
}

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It came to be, or something was moved to its place.
    Created,
    /// Its content or its mode changed.
    Modified,
    /// It was removed or moved away.
    Removed,
}

/// Waits until one of the paths changes, at most for `timeout`: then `None`.
///
/// A path that does not exist yet may come to be; its folder must exist. A
/// file that is replaced by another, as editors do, has changed, and so has a
/// link whose target has. A folder changes when an entry of it does, not when
/// something further down does. What the kernel does not tell is not seen: a
/// write through another name of the same file, a folder further up that is
/// renamed, a change made by another machine.
pub fn paths(paths: &[PathBuf], timeout: Option<Duration>) -> Result<Option<Change>, WatchError> {
    if paths.is_empty() {
        return Err(WatchError::Nothing);
    }
    Watch::over(paths)?.wait(Deadline::after(timeout))
}

/// Waits until `look` finds what is looked for, at most for `timeout`: then `None`. It looks
/// once the paths are watched and again whenever something has changed where they are, so
/// nothing that happens between a look and the next is missed, and nothing wakes up in
/// between.
///
/// What is seen is as for [`paths`]. Dropped, it waits no longer.
///
/// # Panics
///
/// Outside a tokio runtime whose I/O and time are enabled.
pub async fn until<T>(
    paths: &[PathBuf],
    timeout: Option<Duration>,
    mut look: impl FnMut() -> Option<T>,
) -> Result<Option<T>, WatchError> {
    if paths.is_empty() {
        return Err(WatchError::Nothing);
    }
    let watch = Watch::over(paths)?;
    // It is read from like a pipe; what exactly has changed is of no interest here.
    let changes = Receiver::from_owned_fd_unchecked(watch.inotify)?;
    let found = async {
        loop {
            if let Some(found) = look() {
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

/// Files are watched through their folders, since a watch on the file itself
/// would stay with the old one when it is replaced.
pub(super) struct Watch {
    inotify: OwnedFd,
    folders: BTreeMap<i32, Folder>,
}

#[derive(Default)]
struct Folder {
    path: PathBuf,
    /// The whole folder was asked for.
    all: bool,
    /// Names within it that were asked for, and how.
    names: BTreeMap<OsString, PathBuf>,
}

impl Watch {
    pub(super) fn over(paths: &[PathBuf]) -> Result<Self, WatchError> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let mut watch = Self {
            inotify: inotify::init(flags).map_err(io::Error::from)?,
            folders: BTreeMap::new(),
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

    /// Watches a file, to be told under the name that was `given`.
    fn add_file(&mut self, file: &Path, given: &Path) -> Result<(), PathError> {
        let folder = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let name = file.file_name().unwrap_or_default().to_owned();
        self.add(folder)?.names.insert(name, given.to_owned());
        Ok(())
    }

    fn add(&mut self, folder: &Path) -> Result<&mut Folder, PathError> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let number = inotify::add_watch(&self.inotify, folder, flags).at("watch", folder)?;
        let entry = self.folders.entry(number).or_default();
        folder.clone_into(&mut entry.path);
        Ok(entry)
    }

    /// Waits for the first change that was asked for.
    pub(super) fn wait(&self, deadline: Deadline) -> Result<Option<Change>, WatchError> {
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
                    let left = deadline.left_within(Duration::from_hours(1));
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
            return self.change_of_any();
        }
        let folder = self.folders.get(&number)?;
        let removed = ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        let created = ReadFlags::CREATE | ReadFlags::MOVED_TO;
        let itself =
            ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        let path = match name {
            _ if events.intersects(itself) => folder.path.clone(),
            Some(name) => match folder.names.get(name) {
                Some(path) => path.clone(),
                None if folder.all => folder.path.join(name),
                None => return None,
            },
            None if folder.all => folder.path.clone(),
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

    /// More happened than the kernel could note down, so anything may have changed.
    fn change_of_any(&self) -> Option<Change> {
        let folder = self.folders.values().next()?;
        let path = folder.names.values().next().unwrap_or(&folder.path);
        Some(Change {
            path: path.clone(),
            kind: ChangeKind::Modified,
        })
    }
}
