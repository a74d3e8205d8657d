//! The process table, read from `/proc`.
//!
//! Nothing here allocates: the keeper, forked from a process that may have
//! threads, uses it too.

use std::fmt::Write;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::str;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A chain of ancestors longer than this is not followed further. A descendant
/// that deep is found once those above it are gone and it has moved up.
const MAX_DEPTH: usize = 64;

/// What is read of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// `R`, `S`, `Z`, …
    pub(super) state: u8,
    /// 0 for a process without a parent that we may see.
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// In clock ticks since boot.
    pub(super) start_time: u64,
}

impl Stat {
    /// Reads the text of `/proc/PID/stat`. The name, in parentheses, may hold
    /// anything, so the fields are counted from its last closing one.
    fn parse(text: &[u8]) -> Option<Self> {
        let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
        let text = str::from_utf8(text.get(after_name..)?).ok()?;
        let mut fields = text.split_ascii_whitespace();
        Some(Self {
            state: *fields.next()?.as_bytes().first()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start_time: fields.nth(15)?.parse().ok()?,
        })
    }

    /// A zombie has ended; only its parent has not looked yet.
    pub(super) fn is_running(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The process with this number, if there is one now.
pub(super) fn stat(pid: i32) -> Option<Stat> {
    let mut path = Text::<32>::default();
    write!(path, "/proc/{pid}/stat\0").ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, path.as_c_str()?, flags, Mode::empty()).ok()?;
    // The name takes at most 64 bytes and the fields up to the start time
    // at most 21 each.
    let mut buffer = [0; 768];
    let length = rustix::io::read(&file, &mut buffer).ok()?;
    Stat::parse(buffer.get(..length)?)
}

/// Calls `visit` with the number of every process.
pub(super) fn each(mut visit: impl FnMut(i32)) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, c"/proc", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if let Some(pid) = str::from_utf8(name).ok().and_then(|n| n.parse().ok()) {
            visit(pid);
        }
    }
    Ok(())
}

/// Whether `ancestor` is above `pid`.
pub(super) fn is_descendant(pid: i32, ancestor: i32) -> bool {
    let mut current = pid;
    for _ in 0..MAX_DEPTH {
        match stat(current) {
            Some(stat) if stat.parent == ancestor => return true,
            Some(stat) if stat.parent > 1 => current = stat.parent,
            _ => return false,
        }
    }
    false
}

/// Signals every process for which `chosen` holds, and tells how many there were.
///
/// The descriptor is opened before the choice is made. If the process ends
/// in between and its number is used again, the signal reaches nobody,
/// never the newcomer.
pub(super) fn signal(signal: Signal, chosen: impl Fn(i32) -> bool) -> usize {
    let mut signalled = 0;
    // A walk that fails half-way has signalled what it saw; whoever waits
    // for the processes to end walks again.
    let _ = each(|pid| {
        let Some(target) = Pid::from_raw(pid) else {
            return;
        };
        let Ok(target) = pidfd_open(target, PidfdFlags::empty()) else {
            return;
        };
        if chosen(pid) && pidfd_send_signal(target, signal).is_ok() {
            signalled += 1;
        }
    });
    signalled
}

/// A short text on the stack.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }
}

impl<const N: usize> Text<N> {
    fn as_c_str(&self) -> Option<&std::ffi::CStr> {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = b"77 (a) S 1 (x)) Z 5 6 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            stat,
            Stat {
                state: b'Z',
                parent: 5,
                group: 6,
                session: 7,
                start_time: 4242
            }
        );
        assert!(!stat.is_running());
        for length in 0..text.len() - 8 {
            assert_eq!(Stat::parse(&text[..length]), None);
        }
    }

    #[test]
    fn the_table_lists_this_process_under_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let mut found = false;
        each(|pid| found |= pid == me).unwrap();
        assert!(found);
        assert_eq!(stat(me).unwrap().parent, parent);
        assert!(is_descendant(me, parent));
        assert!(!is_descendant(parent, me));
        assert!(stat(i32::MAX).is_none());
    }
}
