//! Whether a later change of a file would show in its times. A file of which
//! that is not sure is read again the next time.

use rustix::time::{ClockId, clock_gettime};

use super::segment::Settled;
use crate::space::FileIdentity;

const SECOND: i128 = 1_000_000_000;

/// The clock that file times are taken from, in nanoseconds since 1970. To be
/// read before the file is.
pub(super) fn tick() -> i128 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    i128::from(now.tv_sec) * SECOND + i128::from(now.tv_nsec)
}

/// Whether a file that was read after this tick, and looked so, would look
/// different after any later change.
pub(super) fn settled(identity: &FileIdentity, tick: i128) -> Settled {
    if identity.is_settled(tick) {
        Settled::Yes
    } else {
        Settled::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_before_the_tick_is_settled() {
        let tick = 1_000 * SECOND + 500_000_002;
        let file = |changed| FileIdentity {
            device: 1,
            inode: 1,
            size: 1,
            modified: 0,
            changed,
        };
        for (changed, expected) in [
            (tick - 1, Settled::Yes),
            (tick, Settled::No),
            (tick + 1, Settled::No),
            // Whole seconds: the file system may not have finer ones.
            (1_000 * SECOND, Settled::No),
            (999 * SECOND, Settled::No),
            (998 * SECOND, Settled::Yes),
            (1_000 * SECOND + 490_000_000, Settled::Yes),
            (1_000 * SECOND + 500_000_000, Settled::No),
        ] {
            assert_eq!(settled(&file(changed), tick), expected, "{changed}");
        }
        let future = FileIdentity {
            modified: tick + SECOND,
            ..file(1)
        };
        assert_eq!(settled(&future, tick), Settled::No);
    }

    #[test]
    fn a_file_just_written_is_not_settled_and_then_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let before = tick();
        std::fs::write(&path, "x").unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let identity = FileIdentity::of(&stat);
        assert_eq!(settled(&identity, before), Settled::No);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while settled(&identity, tick()) == Settled::No {
            assert!(std::time::Instant::now() < end, "the clock stands still");
            std::thread::yield_now();
        }
    }
}
