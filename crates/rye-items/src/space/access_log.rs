//! What a call looked at in a folder, so that a later one can tell that it would find
//! the same.
//!
//! A file that was read is read again and compared byte by byte: that it was not changed
//! is never a matter of times. What was not there is asked for again. Of a folder whose
//! names were listed, the kernel tells when one came or went; a state is noted only if
//! its time was past when it was looked at, as for the cache of what was verified.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, OFlags, statat};
use rustix::io::Errno;

use super::confined_dir::{ConfinedDir, FileIdentity};
use crate::verify::CoarseInstant;

/// More than this is not kept for a later call.
const MOST_BYTES: usize = 1 << 20;

/// What was found at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    Nothing,
    /// A file with these bytes.
    File(Box<[u8]>),
    /// A file or folder in this state.
    State(FileIdentity),
}

/// What was looked at so far.
#[derive(Debug, Default)]
pub(super) struct AccessLog(Mutex<Noting>);

#[derive(Debug, Default)]
enum Noting {
    /// Nobody wants to know, or something cannot be noted.
    #[default]
    Off,
    On(Vec<(Box<str>, Look)>),
    /// The call is over; this is what it found.
    Done(Vec<(Box<str>, Look)>),
}

impl AccessLog {
    pub(super) fn begin(&self) {
        *self.noting() = Noting::On(Vec::new());
    }

    /// Notes no more; tells whether all was noted, and that is not too much.
    pub(super) fn end(&self) -> bool {
        let mut noting = self.noting();
        let Noting::On(looks) = std::mem::take(&mut *noting) else {
            return false;
        };
        let lengths = looks.iter().map(|(_, look)| match look {
            Look::File(bytes) => bytes.len(),
            Look::Nothing | Look::State(_) => 0,
        });
        if lengths.sum::<usize>() > MOST_BYTES {
            return false;
        }
        *noting = Noting::Done(looks);
        true
    }

    /// Something was looked at that cannot be told from what it may become.
    pub(super) fn give_up(&self) {
        let mut noting = self.noting();
        if matches!(*noting, Noting::On(_)) {
            *noting = Noting::Off;
        }
    }

    pub(super) fn note(&self, path: &str, look: impl FnOnce() -> Look) {
        if let Noting::On(looks) = &mut *self.noting()
            && !looks.iter().any(|(noted, _)| **noted == *path)
        {
            looks.push((path.into(), look()));
        }
    }

    /// Notes a state that was looked at after this moment.
    pub(super) fn note_state(&self, path: &str, state: FileIdentity, tick: CoarseInstant) {
        if tick.is_after(&state) {
            self.note(path, || Look::State(state));
        } else {
            self.give_up();
        }
    }

    pub(super) fn are_noted(&self) -> bool {
        matches!(*self.noting(), Noting::On(_))
    }

    fn noting(&self) -> MutexGuard<'_, Noting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfinedDir {
    /// Whether the folder is where it was, and everything in it that was looked at is as
    /// it was found.
    pub(super) fn is_unchanged(&self) -> bool {
        let there = statat(CWD, &self.path, AtFlags::empty());
        let there = there.ok().map(|stat| (stat.st_dev, stat.st_ino));
        if there.is_none() || self.identity() != there {
            return false;
        }
        let noting = self.looks.noting();
        match &*noting {
            Noting::Done(looks) => looks.iter().all(|(path, look)| self.is_so(path, look)),
            Noting::Off | Noting::On(_) => false,
        }
    }

    fn is_so(&self, path: &str, look: &Look) -> bool {
        let state = || statat(&self.fd, path, AtFlags::empty());
        match look {
            Look::Nothing => matches!(state(), Err(Errno::NOENT | Errno::NOTDIR)),
            Look::State(noted) => {
                state().is_ok_and(|stat| FileIdentity::from_stat(&stat) == *noted)
            }
            Look::File(noted) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let Ok(file) = self.open_once(path, flags) else {
                    return false;
                };
                let mut bytes = vec![0; noted.len() + 1];
                let read = rustix::io::read(&file, &mut bytes);
                read.is_ok_and(|length| bytes.get(..length) == Some(noted))
            }
        }
    }
}
