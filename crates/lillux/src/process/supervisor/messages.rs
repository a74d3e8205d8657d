//! The messages between the host and its reapers.
//!
//! Both ends are forks of the same binary, so the format has no version.

use std::time::Duration;

use super::super::image::Step;

/// Asks a reaper to run a command. The block of an [`Image`](super::super::image::Image)
/// follows it, and the three standard streams are sent with its first byte. The host sends
/// nothing else: it cancels a command by closing the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct RunRequest {
    pub(in super::super) block_size: u32,
    pub(in super::super) argc: u32,
    pub(in super::super) envc: u32,
    /// How long the tree may run.
    pub(in super::super) timeout: Option<Duration>,
    /// Time between `SIGTERM` and `SIGKILL`.
    pub(in super::super) grace: Duration,
    /// Whether to send [`Event::Started`].
    pub(in super::super) announce_start: bool,
    /// Whether another process reads standard output. The reaper then closes its own copy, so
    /// that the reader sees the end of the stream.
    pub(in super::super) external_stdout: bool,
}

impl RunRequest {
    pub(super) const SIZE: usize = 32;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let flags = u32::from(self.announce_start) | u32::from(self.external_stdout) << 1;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let counts = [self.block_size, self.argc, self.envc, flags];
        let timeout = self.timeout.map_or(u64::MAX, nanoseconds);
        let times = [timeout, nanoseconds(self.grace)];
        let mut bytes = [0; Self::SIZE];
        let (low, high) = bytes.split_at_mut(16);
        for (slot, number) in low.chunks_exact_mut(4).zip(counts) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        for (slot, time) in high.chunks_exact_mut(8).zip(times) {
            slot.copy_from_slice(&time.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let timeout = u64_at(&bytes, 16);
        Self {
            block_size: u32_at(&bytes, 0),
            argc: u32_at(&bytes, 4),
            envc: u32_at(&bytes, 8),
            announce_start: u32_at(&bytes, 12) & 1 != 0,
            external_stdout: u32_at(&bytes, 12) & 2 != 0,
            timeout: (timeout != u64::MAX).then_some(Duration::from_nanos(timeout)),
            grace: Duration::from_nanos(u64_at(&bytes, 24)),
        }
    }
}

/// A message from a reaper or the fork server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The reaper was forked. Sent once, by the fork server.
    Ready { pid: i32, start_time: u64 },
    /// The command runs. Sent only if [`RunRequest::announce_start`] is set.
    Started { pid: i32, start_time: u64 },
    /// The command could not be started; the reaper is idle again.
    LaunchFailed { step: Step, errno: i32 },
    /// No process of the tree is left; the reaper is idle again. `status` is the wait status
    /// of the main process.
    Ended { status: i32, timed_out: bool },
    /// At least `survivors` processes could not be killed, and the reaper ends. `status` is
    /// the wait status of the main process, if known.
    Stuck {
        survivors: u32,
        status: Option<i32>,
        timed_out: bool,
    },
}

impl Event {
    pub(super) const SIZE: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let (tag, a, b): (u32, i32, u64) = match self {
            Self::Ready { pid, start_time } => (1, pid, start_time),
            Self::Started { pid, start_time } => (2, pid, start_time),
            Self::LaunchFailed { step, errno } => (3, errno, step as u64),
            Self::Ended { status, timed_out } => (4, status, timed_out.into()),
            Self::Stuck {
                survivors,
                status,
                timed_out,
            } => {
                let known = status.map_or(0, |status| 2 | u64::from(status.cast_unsigned()) << 32);
                (5, survivors.cast_signed(), known | u64::from(timed_out))
            }
        };
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&a.to_ne_bytes());
        bytes[8..].copy_from_slice(&b.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let a = u32_at(&bytes, 4);
        let b = u64_at(&bytes, 8);
        Some(match u32_at(&bytes, 0) {
            1 => Self::Ready {
                pid: a.cast_signed(),
                start_time: b,
            },
            2 => Self::Started {
                pid: a.cast_signed(),
                start_time: b,
            },
            3 => Self::LaunchFailed {
                step: Step::from_u32(u32::try_from(b).ok()?),
                errno: a.cast_signed(),
            },
            4 => Self::Ended {
                status: a.cast_signed(),
                timed_out: b != 0,
            },
            5 => Self::Stuck {
                survivors: a,
                status: u32::try_from(b >> 32)
                    .ok()
                    .filter(|_| b & 2 != 0)
                    .map(u32::cast_signed),
                timed_out: b & 1 != 0,
            },
            _ => return None,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for (timeout, announce_start, external_stdout) in [
            (None, true, true),
            (Some(Duration::ZERO), true, false),
            (Some(Duration::from_millis(1500)), false, true),
        ] {
            let request = RunRequest {
                block_size: 1,
                argc: 2,
                envc: u32::MAX,
                timeout,
                grace: Duration::from_nanos(7),
                announce_start,
                external_stdout,
            };
            assert_eq!(RunRequest::from_bytes(request.to_bytes()), request);
        }
        for event in [
            Event::Ready {
                pid: 3,
                start_time: u64::MAX,
            },
            Event::Started {
                pid: 7,
                start_time: u64::MAX - 1,
            },
            Event::LaunchFailed {
                step: Step::Cwd,
                errno: libc::ENOENT,
            },
            Event::Ended {
                status: 0x0900,
                timed_out: true,
            },
            Event::Stuck {
                survivors: 2,
                status: None,
                timed_out: true,
            },
            Event::Stuck {
                survivors: 2,
                status: Some(0x0900),
                timed_out: false,
            },
        ] {
            assert_eq!(Event::from_bytes(event.to_bytes()), Some(event));
        }
        assert_eq!(Event::from_bytes([0; 16]), None);
    }
}
