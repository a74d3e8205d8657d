//! Records the file accesses of a call, so that a later call can check whether it would see the
//! same files.
//!
//! A file that was read is read again and compared byte by byte; timestamps are not trusted for
//! that. A path that did not exist is looked up again. For a directory that was listed, the
//! recorded state tells whether an entry was added or removed. A state is recorded only if its
//! timestamps are reliable, as in the verification cache.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, OFlags, statat};
use rustix::io::Errno;

use super::confined_dir::{ConfinedDir, FileIdentity};
use crate::verify::CoarseInstant;

/// A log with more file content is discarded.
const MAX_BYTES: usize = 1 << 20;

/// The result of accessing a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Access {
    NotFound,
    /// A file with this content was read.
    Content(Box<[u8]>),
    /// A file or directory had this state.
    State(FileIdentity),
}

/// The recorded accesses below one directory.
#[derive(Debug, Default)]
pub(super) struct AccessLog(Mutex<Recording>);

#[derive(Debug, Default)]
enum Recording {
    /// Recording was not started, or an access could not be recorded.
    #[default]
    Off,
    Active(Vec<(Box<str>, Access)>),
    Finished(Vec<(Box<str>, Access)>),
}

impl AccessLog {
    pub(super) fn start(&self) {
        *self.lock() = Recording::Active(Vec::new());
    }

    /// Stops recording. Returns whether the log is complete and within the size limit.
    pub(super) fn finish(&self) -> bool {
        let mut recording = self.lock();
        let Recording::Active(accesses) = std::mem::take(&mut *recording) else {
            return false;
        };
        let lengths = accesses.iter().map(|(_, access)| match access {
            Access::Content(bytes) => bytes.len(),
            Access::NotFound | Access::State(_) => 0,
        });
        if lengths.sum::<usize>() > MAX_BYTES {
            return false;
        }
        *recording = Recording::Finished(accesses);
        true
    }

    /// Discards the log, because an access cannot be recorded reliably.
    pub(super) fn discard(&self) {
        let mut recording = self.lock();
        if matches!(*recording, Recording::Active(_)) {
            *recording = Recording::Off;
        }
    }

    /// Records the first access of a path.
    pub(super) fn record(&self, path: &str, access: impl FnOnce() -> Access) {
        if let Recording::Active(accesses) = &mut *self.lock()
            && !accesses.iter().any(|(recorded, _)| **recorded == *path)
        {
            accesses.push((path.into(), access()));
        }
    }

    /// Records a state that was read after `started`. Discards the log if the file could change
    /// again without a new state.
    pub(super) fn record_state(&self, path: &str, state: FileIdentity, started: CoarseInstant) {
        if started.is_after(&state) {
            self.record(path, || Access::State(state));
        } else {
            self.discard();
        }
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(*self.lock(), Recording::Active(_))
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfinedDir {
    /// Whether the path still refers to this directory, and all recorded accesses would have the
    /// same result.
    pub(super) fn is_unchanged(&self) -> bool {
        let current = statat(CWD, &self.path, AtFlags::empty());
        let current = current.ok().map(|stat| (stat.st_dev, stat.st_ino));
        if current.is_none() || self.identity() != current {
            return false;
        }
        let recording = self.access_log.lock();
        match &*recording {
            Recording::Finished(accesses) => accesses
                .iter()
                .all(|(path, access)| self.has_same_result(path, access)),
            Recording::Off | Recording::Active(_) => false,
        }
    }

    fn has_same_result(&self, path: &str, access: &Access) -> bool {
        let stat = || statat(&self.fd, path, AtFlags::empty());
        match access {
            Access::NotFound => matches!(stat(), Err(Errno::NOENT | Errno::NOTDIR)),
            Access::State(recorded) => {
                stat().is_ok_and(|stat| FileIdentity::from_stat(&stat) == *recorded)
            }
            Access::Content(recorded) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let Ok(file) = self.open_once(path, flags) else {
                    return false;
                };
                let mut bytes = vec![0; recorded.len() + 1];
                let read = rustix::io::read(&file, &mut bytes);
                read.is_ok_and(|length| bytes.get(..length) == Some(recorded))
            }
        }
    }
}
