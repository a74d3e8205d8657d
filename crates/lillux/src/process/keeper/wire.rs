//! What a program and its keepers say to each other.
//!
//! Both ends are the same build, forked from one another, so the layout is
//! nobody else's business and needs no version.

use super::super::image::Step;

/// Precedes the block of an [`Image`](super::super::image::Image); the three
/// standard streams travel with its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) block: u32,
    pub(super) argc: u32,
    pub(super) envc: u32,
    /// How long the tree may take to end if the program dies or leaves things behind.
    pub(super) grace_ms: u32,
    /// Whether somebody waits to hear that it started.
    pub(super) announce: bool,
}

impl Run {
    pub(super) const SIZE: usize = 20;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let announce = u32::from(self.announce);
        let numbers = [self.block, self.argc, self.envc, self.grace_ms, announce];
        let mut bytes = [0; Self::SIZE];
        for (slot, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self {
            block: u32_at(&bytes, 0),
            argc: u32_at(&bytes, 4),
            envc: u32_at(&bytes, 8),
            grace_ms: u32_at(&bytes, 12),
            announce: u32_at(&bytes, 16) != 0,
        }
    }
}

/// What a keeper tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The keeper is there: said once, by the warden, of one that was asked for.
    Ready,
    /// The command runs. Said only if asked for.
    Started { pid: i32, start_time: u64 },
    /// It could not be started; the keeper is free again.
    Refused { step: Step, errno: i32 },
    /// The main process ended, and left others behind, which are being ended.
    Exited { status: i32 },
    /// The main process ended, and nothing of its tree is left; the keeper is free again.
    Ended { status: i32 },
    /// After [`Event::Exited`]: the same, now.
    Gone,
    /// These many could not be killed, the main process perhaps among them. The keeper gives up.
    Stuck { survivors: u32 },
}

impl Event {
    pub(super) const SIZE: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let (tag, a, b): (u32, i32, u64) = match self {
            Self::Ready => (5, 0, 0),
            Self::Started { pid, start_time } => (1, pid, start_time),
            Self::Refused { step, errno } => (2, errno, step as u64),
            Self::Exited { status } => (3, status, 0),
            Self::Gone => (4, 0, 0),
            Self::Ended { status } => (6, status, 0),
            Self::Stuck { survivors } => (7, 0, u64::from(survivors)),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&a.to_ne_bytes());
        bytes[8..].copy_from_slice(&b.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let a = u32_at(&bytes, 4).cast_signed();
        let mut b = [0; 8];
        b.copy_from_slice(&bytes[8..]);
        let b = u64::from_ne_bytes(b);
        let low = u32::try_from(b).unwrap_or(u32::MAX);
        Some(match u32_at(&bytes, 0) {
            1 => Self::Started {
                pid: a,
                start_time: b,
            },
            2 => Self::Refused {
                step: Step::from_u32(low),
                errno: a,
            },
            3 => Self::Exited { status: a },
            4 => Self::Gone,
            5 => Self::Ready,
            6 => Self::Ended { status: a },
            7 => Self::Stuck { survivors: low },
            _ => return None,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(four)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let run = Run {
            block: 1,
            argc: 2,
            envc: u32::MAX,
            grace_ms: 4,
            announce: true,
        };
        assert_eq!(Run::from_bytes(run.to_bytes()), run);
        for event in [
            Event::Ready,
            Event::Started {
                pid: 7,
                start_time: u64::MAX - 1,
            },
            Event::Refused {
                step: Step::Cwd,
                errno: libc::ENOENT,
            },
            Event::Exited { status: 0x0900 },
            Event::Ended { status: 0x0900 },
            Event::Gone,
            Event::Stuck { survivors: 2 },
        ] {
            assert_eq!(Event::from_bytes(event.to_bytes()), Some(event));
        }
        assert_eq!(Event::from_bytes([0; 16]), None);
    }
}
