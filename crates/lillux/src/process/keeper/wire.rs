//! What a program and its keepers say to each other.
//!
//! Both ends are the same build, forked from one another, so the layout is
//! nobody else's business and needs no version.

use std::time::Duration;

use super::super::image::Step;

/// A command to be run. Precedes the block of an
/// [`Image`](super::super::image::Image); the three standard streams travel
/// with its first byte. It is all that a program ever says: to call a command
/// off, it closes the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Run {
    pub(in super::super) block: u32,
    pub(in super::super) argc: u32,
    pub(in super::super) envc: u32,
    /// How long the tree may run.
    pub(in super::super) timeout: Option<Duration>,
    /// How long it may then take to end.
    pub(in super::super) grace: Duration,
    /// Whether somebody waits to hear that it started.
    pub(in super::super) announce: bool,
    /// Whether somebody else reads its standard output, who is to know when the
    /// command has closed it.
    pub(in super::super) read_elsewhere: bool,
}

impl Run {
    pub(super) const SIZE: usize = 32;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let flags = u32::from(self.announce) | u32::from(self.read_elsewhere) << 1;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let counts = [self.block, self.argc, self.envc, flags];
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
            block: u32_at(&bytes, 0),
            argc: u32_at(&bytes, 4),
            envc: u32_at(&bytes, 8),
            announce: u32_at(&bytes, 12) & 1 != 0,
            read_elsewhere: u32_at(&bytes, 12) & 2 != 0,
            timeout: (timeout != u64::MAX).then_some(Duration::from_nanos(timeout)),
            grace: Duration::from_nanos(u64_at(&bytes, 24)),
        }
    }
}

/// What a keeper tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The keeper is there: said once, by the warden.
    Ready { pid: i32, start_time: u64 },
    /// The command runs. Said only if asked for.
    Started { pid: i32, start_time: u64 },
    /// It could not be started; the keeper is free again.
    Refused { step: Step, errno: i32 },
    /// The main process ended so, and nothing of its tree is left; the keeper is free again.
    Ended { status: i32, timed_out: bool },
    /// At least so many processes could not be killed; the main process ended
    /// so, if it is known. The keeper gives up.
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
            Self::Refused { step, errno } => (3, errno, step as u64),
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
            3 => Self::Refused {
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
    fn what_is_said_is_what_is_heard() {
        for (timeout, announce, read_elsewhere) in [
            (None, true, true),
            (Some(Duration::ZERO), true, false),
            (Some(Duration::from_millis(1500)), false, true),
        ] {
            let run = Run {
                block: 1,
                argc: 2,
                envc: u32::MAX,
                timeout,
                grace: Duration::from_nanos(7),
                announce,
                read_elsewhere,
            };
            assert_eq!(Run::from_bytes(run.to_bytes()), run);
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
            Event::Refused {
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
