//! Process handles that are safe against pid reuse.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use super::table::{self, Stat};
use crate::time::Deadline;

/// Identifies a process by pid, start time and boot, so that it never refers to a later process
/// with the same pid. It prints and parses as `PID:START:BOOT` and can be stored and used by
/// another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    pid: i32,
    /// Clock ticks since boot.
    start_time: u64,
    /// The first 8 characters of the kernel's random boot id. Start times repeat after a
    /// reboot, so they alone do not identify a process.
    boot: String,
}

/// Error of creating or using a handle.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// The text is not a handle.
    #[error("{0:?} is not a process handle; expected PID:START:BOOT, as `spawn` prints it")]
    NotAHandle(String),
    /// No process has this pid.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// The process is this process or the init process, which cannot be killed with a handle.
    #[error("process {0} is this process or the init process and cannot be killed")]
    Protected(i32),
    /// The operating system did not allow the signal, or the process did not end.
    #[error("cannot end process {pid}: {source}")]
    Kill {
        /// The process to end.
        pid: i32,
        /// The operating system's error.
        source: io::Error,
    },
    /// `/proc` could not be read.
    #[error("cannot read /proc: {0}")]
    Proc(#[from] io::Error),
}

/// Result of [`Handle::kill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KillOutcome {
    /// The process and its descendants ended after `SIGTERM`, within the grace time.
    Terminated,
    /// At least one of them was killed with `SIGKILL`.
    Killed,
    /// The process had already ended.
    AlreadyDead,
}

impl Handle {
    pub(super) fn new(pid: i32, start_time: u64) -> io::Result<Self> {
        Ok(Self {
            pid,
            start_time,
            boot: boot()?,
        })
    }

    /// Creates a handle of the process that has this pid now.
    pub fn from_pid(pid: i32) -> Result<Self, HandleError> {
        table::check()?;
        match table::stat(pid)? {
            Some(stat) if pid > 0 => {
                let handle = Self::new(pid, stat.start_time)?;
                match handle.open()? {
                    Some(_) => Ok(handle),
                    None => Err(HandleError::NoProcess(pid)),
                }
            }
            _ => Err(HandleError::NoProcess(pid)),
        }
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Start time of the process, in clock ticks since boot.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether the process runs. Returns false for a zombie and if another process has the pid.
    pub fn is_alive(&self) -> Result<bool, HandleError> {
        Ok(self.open()?.is_some())
    }

    /// Waits until the process has ended, at most for `timeout`, and returns whether it has.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, HandleError> {
        let deadline = Deadline::after(timeout);
        let Some(process) = self.open()? else {
            return Ok(true);
        };
        loop {
            let left = deadline.remaining_up_to(Duration::from_hours(1));
            if has_ended_within(&process, left) {
                return Ok(true);
            }
            if deadline.has_passed() {
                return Ok(false);
            }
        }
    }

    /// Ends the process, the group and the session that it leads, and all its descendants:
    /// first with `SIGTERM`, after `grace` with `SIGKILL`. Blocks until they are gone, at most
    /// for `grace` plus five seconds.
    pub fn kill(&self, grace: Duration) -> Result<KillOutcome, HandleError> {
        if self.pid <= 1 || self.pid == getpid().as_raw_nonzero().get() {
            return Err(HandleError::Protected(self.pid));
        }
        table::check()?;
        if boot()? != self.boot {
            return Ok(KillOutcome::AlreadyDead);
        }
        let mut tree = Tree::default();
        tree.extend(self)?;
        if tree.members.is_empty() {
            return Ok(KillOutcome::AlreadyDead);
        }
        let deadline = Deadline::after(Some(grace));
        while !deadline.has_passed() {
            tree.signal(Signal::TERM);
            tree.signal(Signal::CONT);
            tree.wait(deadline);
            // Find processes that were forked after the signal.
            tree.extend(self)?;
            if tree.members.is_empty() {
                return Ok(KillOutcome::Terminated);
            }
        }
        let deadline = Deadline::after(Some(Duration::from_secs(5)));
        loop {
            let outcome = tree.signal(Signal::KILL);
            // Find processes that were forked while their parents were killed.
            tree.wait(Deadline::after(Some(Duration::from_millis(100))));
            tree.extend(self)?;
            if tree.members.is_empty() {
                return Ok(KillOutcome::Killed);
            }
            let source = match outcome {
                SignalOutcome::AllFailed(error) => error.into(),
                SignalOutcome::Sent if deadline.has_passed() => io::ErrorKind::TimedOut.into(),
                SignalOutcome::Sent => continue,
            };
            let pid = self.pid;
            return Err(HandleError::Kill { pid, source });
        }
    }

    /// Opens a pidfd of the process, if it has not ended. The pidfd is opened before the
    /// identity is checked, so the check applies to the process behind the pidfd.
    fn open(&self) -> Result<Option<OwnedFd>, HandleError> {
        let Some(process) = open(self.pid)? else {
            return Ok(None);
        };
        let is_same = boot()? == self.boot && self.has_start_of(table::stat(self.pid)?);
        Ok((is_same && !has_ended_within(&process, Duration::ZERO)).then_some(process))
    }

    fn has_start_of(&self, stat: Option<Stat>) -> bool {
        stat.is_some_and(|stat| stat.start_time == self.start_time)
    }

    /// Whether another process now has the pid.
    fn is_recycled(&self) -> io::Result<bool> {
        let stat = table::stat(self.pid)?;
        Ok(stat.is_some() && !self.has_start_of(stat))
    }
}

/// The processes to end, by pidfd. A child whose parent has ended cannot be found again by its
/// ancestors, so every process stays in the list once it was found.
#[derive(Default)]
struct Tree {
    members: Vec<Member>,
}

struct Member {
    pid: i32,
    start_time: u64,
    process: OwnedFd,
}

/// Result of signalling all members of a tree.
enum SignalOutcome {
    /// At least one member accepted the signal.
    Sent,
    /// No member accepted the signal.
    AllFailed(rustix::io::Errno),
}

impl Tree {
    /// Adds the process of a handle, the group and session that it leads, its descendants, and
    /// the descendants of all members. While a group or session exists, the kernel does not
    /// reuse the pid of its leader, even if the leader has ended. If the pid was reused,
    /// processes are no longer selected by it.
    fn extend(&mut self, handle: &Handle) -> Result<(), HandleError> {
        let me = getpid().as_raw_nonzero().get();
        let by_pid = !handle.is_recycled()?;
        let mut found = Vec::new();
        let mut failed = None;
        table::each(|pid| {
            if pid == me || self.members.iter().any(|member| member.pid == pid) {
                return;
            }
            let process = match open(pid) {
                Ok(Some(process)) => process,
                Ok(None) => return,
                Err(error) => return failed = Some(error),
            };
            let mut ancestry = table::ancestry(pid).peekable();
            let Some((_, stat)) = ancestry.peek().copied() else {
                return;
            };
            let ids = [pid, stat.group, stat.session, stat.parent];
            let matches_pid =
                by_pid && (ids.contains(&handle.pid) || table::is_descendant(pid, handle.pid));
            let below_member =
                ancestry.any(|(ancestor, stat)| self.contains(ancestor, stat.start_time));
            if (matches_pid || below_member) && !has_ended_within(&process, Duration::ZERO) {
                let start_time = stat.start_time;
                let member = Member {
                    pid,
                    start_time,
                    process,
                };
                found.push((member, below_member));
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        // If the pid was reused meanwhile, matches by pid are not reliable.
        let still_by_pid = !handle.is_recycled()?;
        let found = found.into_iter();
        let reliable = found.filter(|(_, below_member)| *below_member || still_by_pid);
        self.members.extend(reliable.map(|(member, _)| member));
        Ok(())
    }

    fn contains(&self, pid: i32, start_time: u64) -> bool {
        let mut members = self.members.iter();
        members.any(|member| (member.pid, member.start_time) == (pid, start_time))
    }

    /// Signals all members. A member that has ended counts as signalled.
    fn signal(&self, signal: Signal) -> SignalOutcome {
        let mut failure = None;
        let mut is_sent = false;
        for member in &self.members {
            match pidfd_send_signal(&member.process, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => is_sent = true,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !is_sent => SignalOutcome::AllFailed(error),
            _ => SignalOutcome::Sent,
        }
    }

    /// Waits until all members have ended or the deadline has passed. Removes those that have
    /// ended.
    fn wait(&mut self, deadline: Deadline) {
        loop {
            self.members
                .retain(|member| !has_ended_within(&member.process, Duration::ZERO));
            let Some(one) = self.members.first() else {
                return;
            };
            let left = deadline.remaining_up_to(Duration::from_hours(1));
            if !has_ended_within(&one.process, left) && deadline.has_passed() {
                return;
            }
        }
    }
}

/// Opens a pidfd of the process with this pid, if there is one.
fn open(pid: i32) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Ok(Some(process)),
        // No process has the pid, or it is the id of a thread.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits up to `time` for a process to end, and returns whether it has. A process whose main
/// thread has ended while others run has not ended, although it looks like a zombie in `/proc`.
fn has_ended_within(process: &OwnedFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).unwrap_or_default();
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    poll(&mut watched, Some(&time)).is_ok_and(|ended| ended > 0)
}

fn boot() -> io::Result<String> {
    let mut id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    id.truncate(8);
    Ok(id)
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.pid, self.start_time, self.boot)
    }
}

impl FromStr for Handle {
    type Err = HandleError;

    fn from_str(text: &str) -> Result<Self, HandleError> {
        let parse = || {
            let (pid, rest) = text.split_once(':')?;
            let (start_time, boot) = rest.split_once(':')?;
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            let is_boot = boot.len() == 8 && boot.bytes().all(|b| b.is_ascii_hexdigit());
            (digits(pid) && digits(start_time) && is_boot).then_some(())?;
            Some(Self {
                pid: pid.parse().ok().filter(|pid| *pid > 0)?,
                start_time: start_time.parse().ok()?,
                boot: boot.to_owned(),
            })
        };
        parse().ok_or_else(|| HandleError::NotAHandle(text.to_owned()))
    }
}

crate::serde_as_text!(Handle);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_round_trips_through_text() {
        let handle = Handle::from_pid(getpid().as_raw_nonzero().get()).unwrap();
        assert_eq!(handle.to_string().parse::<Handle>().unwrap(), handle);
        assert!(handle.is_alive().unwrap());
    }

    #[test]
    fn invalid_handles_are_rejected() {
        for text in [
            "",
            "1",
            "1:2",
            "-1:2:aabbccdd",
            "0:2:aabbccdd",
            "4294967295:1:aabbccdd",
            "1:+2:aabbccdd",
            "1:2:aabb",
            "1:2:zzzzzzzz",
            "1:2:aabbccdd:3",
        ] {
            assert!(text.parse::<Handle>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn same_pid_with_another_start_or_boot_is_another_process() {
        let me = Handle::from_pid(getpid().as_raw_nonzero().get()).unwrap();
        let earlier = Handle {
            start_time: me.start_time - 1,
            ..me.clone()
        };
        let rebooted = Handle {
            boot: "00000000".into(),
            ..me.clone()
        };
        for other in [earlier, rebooted] {
            assert!(!other.is_alive().unwrap());
            assert!(other.wait(None).unwrap());
        }
    }

    #[test]
    fn init_and_this_process_are_not_killed() {
        for pid in [1, getpid().as_raw_nonzero().get()] {
            let handle = Handle::from_pid(pid).unwrap();
            let error = handle.kill(Duration::ZERO).unwrap_err();
            assert!(matches!(error, HandleError::Protected(_)));
        }
    }
}
