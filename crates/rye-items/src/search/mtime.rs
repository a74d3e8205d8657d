//! Detects racy timestamps: a file modified within the current clock tick can change
//! again without a visible difference, so it has to be read again next time.

use rustix::time::{ClockId, clock_gettime};

use super::segment::Timestamps;
use crate::space::FileIdentity;

const SECOND: i128 = 1_000_000_000;

/// The clock that the kernel uses for file timestamps, in nanoseconds since 1970.
/// Sample it before reading the file.
pub(super) fn tick() -> i128 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    i128::from(now.tv_sec) * SECOND + i128::from(now.tv_nsec)
}

/// Whether any change after `tick` must alter the timestamps of a file that was read
/// then.
pub(super) fn timestamps(identity: &FileIdentity, tick: i128) -> Timestamps {
    if identity.has_reliable_times(tick) {
        Timestamps::Reliable
    } else {
        Timestamps::Racy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_before_the_tick_are_reliable() {
        let tick = 1_000 * SECOND + 500_000_002;
        let file = |changed| FileIdentity {
            device: 1,
            inode: 1,
            size: 1,
            modified: 0,
            changed,
        };
        for (changed, expected) in [
            (tick - 1, Timestamps::Reliable),
            (tick, Timestamps::Racy),
            (tick + 1, Timestamps::Racy),
            // Whole seconds: the file system may have no finer resolution.
            (1_000 * SECOND, Timestamps::Racy),
            (999 * SECOND, Timestamps::Racy),
            (998 * SECOND, Timestamps::Reliable),
            (1_000 * SECOND + 490_000_000, Timestamps::Reliable),
            (1_000 * SECOND + 500_000_000, Timestamps::Racy),
        ] {
            assert_eq!(timestamps(&file(changed), tick), expected, "{changed}");
        }
        let future = FileIdentity {
            modified: tick + SECOND,
            ..file(1)
        };
        assert_eq!(timestamps(&future, tick), Timestamps::Racy);
    }

    #[test]
    fn freshly_written_file_is_racy_until_the_next_tick() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let before = tick();
        std::fs::write(&path, "x").unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let identity = FileIdentity::from_stat(&stat);
        assert_eq!(timestamps(&identity, before), Timestamps::Racy);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while timestamps(&identity, tick()) == Timestamps::Racy {
            assert!(
                std::time::Instant::now() < end,
                "the clock does not advance"
            );
            std::thread::yield_now();
        }
    }
}
