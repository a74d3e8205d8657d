//! A name for a process that outlives it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::table::{self, Stat};

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
        match table::stat(pid) {
            Some(stat) if pid > 0 && stat.is_running() => Ok(Self::new(pid, stat.start_time)?),
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
        Ok(self.stat()?.is_some_and(|stat| stat.is_running()))
    }

    /// Ends the process, its group and session if it leads them, and all its
    /// descendants: `SIGTERM` first, `SIGKILL` to those that are left after
    /// `grace`. Blocks until they are gone, for at most `grace` and five
    /// seconds.
    pub fn kill(&self, grace: Duration) -> Result<Killed, HandleError> {
        if self.pid <= 1 || self.pid == getpid().as_raw_nonzero().get() {
            return Err(HandleError::Untouchable(self.pid));
        }
        if boot()? != self.boot || self.is_recycled() {
            return Ok(Killed::AlreadyDead);
        }
        let mut targets = self.targets()?;
        if targets.is_empty() {
            return Ok(Killed::AlreadyDead);
        }
        if !grace.is_zero() {
            self.signal(&targets, Signal::TERM)?;
            self.signal(&targets, Signal::CONT)?;
            wait_for_end(&mut targets, grace);
            if self.targets()?.is_empty() {
                return Ok(Killed::Terminated);
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let mut targets = self.targets()?;
            if targets.is_empty() {
                return Ok(Killed::Killed);
            }
            self.signal(&targets, Signal::KILL)?;
            // What is left may fork while it is killed, so it is looked for again.
            wait_for_end(&mut targets, Duration::from_millis(100));
            if Instant::now() > deadline {
                return Err(self.refused(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    /// Waits until the process has ended, at most for `timeout`. Tells whether it has.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, HandleError> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(true);
        };
        // Opened first and checked afterwards: what is checked is what is waited for.
        let Ok(target) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(true);
        };
        if !self.is_alive()? {
            return Ok(true);
        }
        let mut targets = vec![target];
        match timeout {
            Some(timeout) => wait_for_end(&mut targets, timeout),
            None => {
                while !targets.is_empty() {
                    wait_for_end(&mut targets, Duration::from_hours(1));
                }
            }
        }
        Ok(targets.is_empty())
    }

    fn stat(&self) -> Result<Option<Stat>, HandleError> {
        if boot()? != self.boot {
            return Ok(None);
        }
        let stat = table::stat(self.pid);
        Ok(stat.filter(|stat| stat.start_time == self.start_time))
    }

    fn is_recycled(&self) -> bool {
        table::stat(self.pid).is_some_and(|stat| stat.start_time != self.start_time)
    }

    /// The process itself, those of the group and session it leads, and its
    /// descendants. A leader that has ended still lends its number to them:
    /// the kernel gives it to nobody else before they are gone.
    fn targets(&self) -> Result<Vec<OwnedFd>, HandleError> {
        let me = getpid().as_raw_nonzero().get();
        let mut targets = Vec::new();
        let mut refused = None;
        table::each(|pid| {
            let Some(raw) = Pid::from_raw(pid).filter(|_| pid != me) else {
                return;
            };
            let target = match pidfd_open(raw, PidfdFlags::empty()) {
                Ok(target) => target,
                Err(error) => return refused = Some(error),
            };
            let belongs = table::stat(pid).is_some_and(|stat| {
                stat.is_running()
                    && (pid == self.pid
                        || stat.group == self.pid
                        || stat.session == self.pid
                        || table::is_descendant(pid, self.pid))
            });
            if belongs {
                targets.push(target);
            }
        })?;
        // Processes come and go during a walk; only running out of descriptors matters.
        match refused {
            Some(error) if error == rustix::io::Errno::MFILE => Err(self.refused(error.into())),
            _ => Ok(targets),
        }
    }

    /// Signals all targets. One that ended meanwhile is fine; one that we may not signal is told.
    fn signal(&self, targets: &[OwnedFd], signal: Signal) -> Result<(), HandleError> {
        for target in targets {
            match pidfd_send_signal(target, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(self.refused(error.into())),
            }
        }
        Ok(())
    }

    fn refused(&self, source: io::Error) -> HandleError {
        HandleError::Refused {
            pid: self.pid,
            source,
        }
    }
}

/// Waits until all targets have ended or the time is up; leaves those that have not.
fn wait_for_end(targets: &mut Vec<OwnedFd>, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while !targets.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let mut watched: Vec<_> = targets
            .iter()
            .map(|target| PollFd::new(target, PollFlags::IN))
            .collect();
        let ready = poll(&mut watched, Some(&left));
        let ended: Vec<_> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        if matches!(ready, Ok(0)) {
            return;
        }
        let mut ended = ended.iter();
        targets.retain(|_| !ended.next().copied().unwrap_or(false));
    }
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

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

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
