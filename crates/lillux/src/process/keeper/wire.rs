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
}

impl Run {
    pub(super) const SIZE: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let numbers = [self.block, self.argc, self.envc, self.grace_ms];
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
        }
    }
}

/// What a keeper tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The keeper is there. Said once, before anything is asked of it.
    Ready,
    /// The command runs.
    Started { pid: i32, start_time: u64 },
    /// It could not be started; the keeper is free again.
    Refused { step: Step, errno: i32 },
    /// The main process ended. Its tree may still be there.
    Exited { status: i32 },
    /// Nothing of the tree is left but `survivors`, which could not be killed.
    /// Without any, the keeper is free again.
    Gone { survivors: u32 },
}

impl Event {
    pub(super) const SIZE: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let (tag, a, b): (u32, i32, u64) = match self {
            Self::Ready => (5, 0, 0),
            Self::Started { pid, start_time } => (1, pid, start_time),
            Self::Refused { step, errno } => (2, errno, step as u64),
            Self::Exited { status } => (3, status, 0),
            Self::Gone { survivors } => (4, 0, u64::from(survivors)),
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
            4 => Self::Gone { survivors: low },
            5 => Self::Ready,
            _ => return None,
        })
    }
}

fn u32_at(bytes: &[u8; 16], at: usize) -> u32 {
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
            Event::Gone { survivors: 2 },
        ] {
            assert_eq!(Event::from_bytes(event.to_bytes()), Some(event));
        }
        assert_eq!(Event::from_bytes([0; 16]), None);
    }
}
