//! Reads the process table from `/proc` and signals processes.
//!
//! Only [`check`] allocates: reapers, which are forked from a process that may have threads, use
//! the other functions.

use std::fmt::Write;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::str;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

use crate::time::monotonic;

/// Maximum number of ancestors to follow. A deeper descendant is found when its ancestors have
/// ended and it has become a child of the subreaper.
const MAX_DEPTH: usize = 64;

/// The fields of `/proc/PID/stat` that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Whether the process is a zombie.
    pub(super) ended: bool,
    /// 0 if there is no visible parent.
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// In clock ticks since boot.
    pub(super) start_time: u64,
}

impl Stat {
    /// Parses `/proc/PID/stat`. The process name in parentheses may contain anything, so fields
    /// are counted from the last closing parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
        let text = str::from_utf8(text.get(after_name..)?).ok()?;
        let mut fields = text.split_ascii_whitespace();
        Some(Self {
            ended: matches!(fields.next()?, "Z" | "X"),
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start_time: fields.nth(15)?.parse().ok()?,
        })
    }
}

/// Fails unless `/proc` is mounted and shows this process under its own pid. With the `/proc` of
/// another pid namespace, signals would go to wrong processes.
pub(super) fn check() -> io::Result<()> {
    let me = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(own) if own.as_os_str() == me.as_str() => Ok(()),
        Ok(_) => Err(io::Error::other(
            "/proc belongs to another pid namespace; mount the one of this namespace",
        )),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot read /proc, is it mounted? ({error})"),
        )),
    }
}

/// Reads the stat of the process with this pid, if there is one.
pub(super) fn stat(pid: i32) -> io::Result<Option<Stat>> {
    let mut path = Text::<32>::default();
    let text = write!(path, "/proc/{pid}/stat\0").ok();
    let Some(path) = text.and_then(|()| path.as_c_str()) else {
        return Ok(None);
    };
    // The name has at most 64 bytes, and the fields up to the start time at most 21 each.
    let mut buffer = [0; 768];
    let read = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut buffer));
    match read {
        Ok(length) => Ok(buffer.get(..length).and_then(Stat::parse)),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the other end of a pipe that this process writes to.
pub(super) fn open_read_end(pipe: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut path = Text::<32>::default();
    write!(path, "/proc/self/fd/{}\0", pipe.as_raw_fd()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(CWD, path.as_c_str()?, flags, Mode::empty()).ok()
}

/// Calls `visit` with the pid of every process. New processes get higher pids and would be
/// visited too, so the walk stops after a second in case processes fork endlessly. Callers that
/// wait for processes to end repeat it.
pub(super) fn each(mut visit: impl FnMut(i32)) -> io::Result<()> {
    const MAX_DURATION: Duration = Duration::from_secs(1);
    let until = monotonic() + MAX_DURATION;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, c"/proc", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if let Some(pid) = str::from_utf8(name).ok().and_then(|n| n.parse().ok()) {
            visit(pid);
        }
        if monotonic() > until {
            break;
        }
    }
    Ok(())
}

/// A process and its ancestors with their pids. Stops at a parent that is younger than its child,
/// because that is another process that reuses the parent's pid.
pub(super) fn ancestry(pid: i32) -> impl Iterator<Item = (i32, Stat)> {
    let mut next = Some((pid, u64::MAX));
    let chain = std::iter::from_fn(move || {
        let (pid, child_start) = next.take()?;
        let stat = stat(pid).ok()??;
        if stat.start_time > child_start {
            return None;
        }
        next = (stat.parent > 1).then_some((stat.parent, stat.start_time));
        Some((pid, stat))
    });
    chain.take(MAX_DEPTH)
}

/// Whether `ancestor` is an ancestor of `pid`.
pub(super) fn is_descendant(pid: i32, ancestor: i32) -> bool {
    ancestry(pid).any(|(_, stat)| stat.parent == ancestor)
}

/// Signals every process for which `chosen` returns true, and returns how many there were.
///
/// The pidfd is opened before `chosen` runs. If the process ends in between and its pid is
/// reused, the signal does not reach the new process.
pub(super) fn signal(signal: Signal, chosen: impl Fn(i32) -> bool) -> usize {
    let mut count = 0;
    // Callers repeat the walk, so an incomplete one is not an error.
    let _ = each(|pid| {
        let Some(target) = Pid::from_raw(pid) else {
            return;
        };
        let Ok(target) = pidfd_open(target, PidfdFlags::empty()) else {
            return;
        };
        if chosen(pid) {
            count += 1;
            let _ = pidfd_send_signal(target, signal);
        }
    });
    count
}

/// Signals the process with this pid if `is_target` returns true for it.
pub(super) fn signal_one(signal: Signal, pid: i32, is_target: impl Fn(&Stat) -> bool) {
    let Some(process) = Pid::from_raw(pid) else {
        return;
    };
    if let Ok(process) = pidfd_open(process, PidfdFlags::empty())
        && let Ok(Some(stat)) = stat(pid)
        && is_target(&stat)
    {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// Kills all descendants of a subreaper, but not the subreaper itself, and returns how many
/// there were. While the subreaper exists, even if it is stopped, orphans stay below it, so
/// calling this again finds processes that were forked meanwhile.
pub(super) fn kill_descendants(subreaper: i32) -> usize {
    signal(Signal::KILL, |pid| {
        let is_running = || stat(pid).is_ok_and(|stat| stat.is_some_and(|stat| !stat.ended));
        is_descendant(pid, subreaper) && is_running()
    })
}

/// Kills the children of this process, from the kernel's list. Does nothing if the kernel
/// provides no such list.
pub(super) fn kill_children() {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = c"/proc/thread-self/children";
    let Ok(list) = openat(CWD, path, flags, Mode::empty()) else {
        return;
    };
    let mut number = 0i32;
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = rustix::io::read(&list, &mut buffer) {
        for byte in buffer.iter().take(length) {
            if byte.is_ascii_digit() {
                number = number.wrapping_mul(10) + i32::from(byte - b'0');
            } else if let Some(child) = Pid::from_raw(std::mem::take(&mut number)) {
                let _ = kill_process(child, Signal::KILL);
            }
        }
    }
}

/// Kills a child of this process and the group that it leads. The child must not have been
/// reaped, because its pid could have been reused.
pub(super) fn kill_leader(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        let _ = kill_process(child, Signal::KILL);
        let _ = kill_process_group(child, Signal::KILL);
    }
}

/// A short string on the stack.
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
    fn process_name_with_parentheses_does_not_shift_the_fields() {
        let text = b"77 (a) S 1 (x)) Z 5 6 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            stat,
            Stat {
                ended: true,
                parent: 5,
                group: 6,
                session: 7,
                start_time: 4242
            }
        );
        for length in 0..text.len() - 8 {
            assert_eq!(Stat::parse(&text[..length]), None);
        }
    }

    #[test]
    fn this_process_is_listed_below_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let mut found = false;
        each(|pid| found |= pid == me).unwrap();
        assert!(found);
        assert_eq!(stat(me).unwrap().unwrap().parent, parent);
        assert!(is_descendant(me, parent));
        assert!(!is_descendant(parent, me));
        assert!(stat(i32::MAX).unwrap().is_none());
    }
}
