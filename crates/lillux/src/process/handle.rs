//! A name for a process that outlives it.

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

/// A process, by number, start time and boot: never mistaken for a later one
/// that was given the same number. Prints and parses as `PID:START:BOOT`, to
/// be written down and used by another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    pid: i32,
    /// Clock ticks since boot.
    start_time: u64,
    /// The first 8 characters of the kernel's random boot id. Ticks start anew
    /// with each boot, so without it a handle could fit a stranger.
    boot: String,
}

/// Why a handle could not be had or used.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// Not a number a process can have.
    #[error("{0} is not a process id")]
    NotAPid(String),
    /// Not the text of a handle.
    #[error("{0:?} is not a process handle; it reads PID:START:BOOT, as `spawn` prints it")]
    NotAHandle(String),
    /// No process has this number now.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// A process that would take the caller with it.
    #[error("{0} is this process itself or the system's first; it is not ended")]
    Untouchable(i32),
    /// The operating system refused.
    #[error("cannot end process {pid}: {source}")]
    Refused {
        /// The process.
        pid: i32,
        /// What the operating system said.
        source: io::Error,
    },
    /// `/proc` could not be read.
    #[error("cannot read /proc: {0}")]
    Proc(#[from] io::Error),
}

/// How a process came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Killed {
    /// It ended on `SIGTERM`, within the grace, and so did its group.
    Terminated,
    /// It, or one of its group, had to be killed.
    Killed,
    /// It had ended before.
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

    /// The process that has this number now.
    pub fn of_running(pid: i32) -> Result<Self, HandleError> {
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

    /// The process's number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// When it started, in clock ticks since boot.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether this very process runs. A zombie does not, nor does another
    /// process with the same number.
    pub fn is_alive(&self) -> Result<bool, HandleError> {
        Ok(self.open()?.is_some())
    }

    /// Waits until the process has ended, at most for `timeout`. Tells whether it has.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, HandleError> {
        let deadline = Deadline::after(timeout);
        let Some(process) = self.open()? else {
            return Ok(true);
        };
        loop {
            let left = deadline.left_within(Duration::from_hours(1));
            if has_ended_within(&process, left) {
                return Ok(true);
            }
            if deadline.has_passed() {
                return Ok(false);
            }
        }
    }

    /// Ends the process, its group and session if it leads them, and all its
    /// descendants: `SIGTERM` first, `SIGKILL` to those that are left after
    /// `grace`. Blocks until they are gone, for at most `grace` and five
    /// seconds.
    pub fn kill(&self, grace: Duration) -> Result<Killed, HandleError> {
        if self.pid <= 1 || self.pid == getpid().as_raw_nonzero().get() {
            return Err(HandleError::Untouchable(self.pid));
        }
        table::check()?;
        if boot()? != self.boot {
            return Ok(Killed::AlreadyDead);
        }
        let mut tree = Tree::default();
        tree.extend(self)?;
        if tree.members.is_empty() {
            return Ok(Killed::AlreadyDead);
        }
        let deadline = Deadline::after(Some(grace));
        while !deadline.has_passed() {
            tree.signal(Signal::TERM);
            tree.signal(Signal::CONT);
            tree.wait(deadline);
            // One that was just forked has heard nothing yet.
            tree.extend(self)?;
            if tree.members.is_empty() {
                return Ok(Killed::Terminated);
            }
        }
        let deadline = Deadline::after(Some(Duration::from_secs(5)));
        loop {
            let refused = tree.signal(Signal::KILL);
            // What is left may fork while it is killed, so it is looked for again.
            tree.wait(Deadline::after(Some(Duration::from_millis(100))));
            tree.extend(self)?;
            if tree.members.is_empty() {
                return Ok(Killed::Killed);
            }
            let source = match refused {
                Refused::All(error) => error.into(),
                Refused::Some if deadline.has_passed() => io::ErrorKind::TimedOut.into(),
                Refused::Some => continue,
            };
            let pid = self.pid;
            return Err(HandleError::Refused { pid, source });
        }
    }

    /// The process itself, if it has not ended. The descriptor is opened first
    /// and checked afterwards: what is checked is what is used.
    fn open(&self) -> Result<Option<OwnedFd>, HandleError> {
        let Some(process) = open(self.pid)? else {
            return Ok(None);
        };
        let is_it = boot()? == self.boot && self.is_start_of(table::stat(self.pid)?);
        Ok((is_it && !has_ended_within(&process, Duration::ZERO)).then_some(process))
    }

    fn is_start_of(&self, stat: Option<Stat>) -> bool {
        stat.is_some_and(|stat| stat.start_time == self.start_time)
    }

    /// Whether the number is now another process's.
    fn is_recycled(&self) -> io::Result<bool> {
        let stat = table::stat(self.pid)?;
        Ok(stat.is_some() && !self.is_start_of(stat))
    }
}

/// Processes to be ended. Once found they are held by descriptor, since their
/// ties may be cut: a child of one that ends belongs to nobody any more.
#[derive(Default)]
struct Tree {
    members: Vec<Member>,
}

struct Member {
    pid: i32,
    start_time: u64,
    process: OwnedFd,
}

/// Who did not take a signal.
enum Refused {
    /// Nobody, or not everybody.
    Some,
    All(rustix::io::Errno),
}

impl Tree {
    /// Adds what belongs to the process of a handle: itself, the group and
    /// session it leads, its descendants and those of all members. A leader
    /// that has ended still lends its number to its group: the kernel gives it
    /// to nobody else before they are gone. Once it is given to somebody else,
    /// nothing goes by the number any more.
    fn extend(&mut self, handle: &Handle) -> Result<(), HandleError> {
        let me = getpid().as_raw_nonzero().get();
        let by_number = !handle.is_recycled()?;
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
            let numbers = [pid, stat.group, stat.session, stat.parent];
            let of_number = by_number
                && (numbers.contains(&handle.pid) || table::is_descendant(pid, handle.pid));
            let of_member = ancestry.any(|(above, stat)| self.holds(above, stat.start_time));
            if (of_number || of_member) && !has_ended_within(&process, Duration::ZERO) {
                let start_time = stat.start_time;
                let member = Member {
                    pid,
                    start_time,
                    process,
                };
                found.push((member, of_member));
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let still_by_number = !handle.is_recycled()?;
        let found = found.into_iter();
        let sure = found.filter(|(_, of_member)| *of_member || still_by_number);
        self.members.extend(sure.map(|(member, _)| member));
        Ok(())
    }

    fn holds(&self, pid: i32, start_time: u64) -> bool {
        let mut members = self.members.iter();
        members.any(|member| (member.pid, member.start_time) == (pid, start_time))
    }

    /// Signals all members; one that ended meanwhile is fine.
    fn signal(&self, signal: Signal) -> Refused {
        let mut refused = None;
        let mut taken = false;
        for member in &self.members {
            match pidfd_send_signal(&member.process, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => taken = true,
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if !taken => Refused::All(error),
            _ => Refused::Some,
        }
    }

    /// Waits until all members have ended or it is too late; leaves those that have not.
    fn wait(&mut self, deadline: Deadline) {
        loop {
            self.members
                .retain(|member| !has_ended_within(&member.process, Duration::ZERO));
            let Some(one) = self.members.first() else {
                return;
            };
            let left = deadline.left_within(Duration::from_hours(1));
            if !has_ended_within(&one.process, left) && deadline.has_passed() {
                return;
            }
        }
    }
}

/// A descriptor of the process with this number, if there is one.
fn open(pid: i32) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Ok(Some(process)),
        // The number is nobody's, or only a thread's.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a process has ended, or does within this time. One whose first
/// thread has ended while others go on has not, though it looks like a zombie.
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
        let read = || {
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
        read().ok_or_else(|| HandleError::NotAHandle(text.to_owned()))
    }
}

crate::text::serde_as_text!(Handle);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_reads_back_as_it_was_written() {
        let handle = Handle::of_running(getpid().as_raw_nonzero().get()).unwrap();
        assert_eq!(handle.to_string().parse::<Handle>().unwrap(), handle);
        assert!(handle.is_alive().unwrap());
    }

    #[test]
    fn what_is_not_a_handle_is_refused() {
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
    fn the_same_number_with_another_start_or_boot_is_another_process() {
        let me = Handle::of_running(getpid().as_raw_nonzero().get()).unwrap();
        let earlier = Handle {
            start_time: me.start_time - 1,
            ..me.clone()
        };
        let rebooted = Handle {
            boot: "00000000".into(),
            ..me.clone()
        };
        for stranger in [earlier, rebooted] {
            assert!(!stranger.is_alive().unwrap());
            assert!(stranger.wait(None).unwrap());
        }
    }

    #[test]
    fn the_first_process_and_oneself_are_not_killed() {
        for pid in [1, getpid().as_raw_nonzero().get()] {
            let handle = Handle::of_running(pid).unwrap();
            let error = handle.kill(Duration::ZERO).unwrap_err();
            assert!(matches!(error, HandleError::Untouchable(_)));
        }
    }
}
