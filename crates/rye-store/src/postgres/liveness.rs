//! Whether this host can reach the database, and the time of the database.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use rye_engine::clock::{Clock, SystemClock};
use rye_protocol::Millis;

/// A host that lost the database within this time judges nobody: after a failover, all hosts look
/// dead for a moment.
const JUDGES_AFTER: Duration = Duration::from_secs(15);

/// A host that did not hear from the database for this long has lost it.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(3);

/// What a host knows about its connection to the database. Times are those of `CLOCK_BOOTTIME`,
/// which also runs while the machine is suspended.
#[derive(Debug)]
pub(super) struct Liveness {
    /// When the last heartbeat that the database answered was sent.
    heard: AtomicI64,
    /// When the database answered again after it was lost; `NEVER` if it was not.
    regained: AtomicI64,
    /// Time of the database minus boot time, in milliseconds; `NEVER` before the first heartbeat.
    offset: AtomicI64,
    /// Before the first heartbeat.
    system: SystemClock,
    /// The latest time that was returned, so that time never goes back.
    latest: AtomicI64,
}

const NEVER: i64 = i64::MIN;

impl Default for Liveness {
    fn default() -> Self {
        Self {
            heard: NEVER.into(),
            regained: NEVER.into(),
            offset: NEVER.into(),
            system: SystemClock::default(),
            latest: NEVER.into(),
        }
    }
}

/// Milliseconds since the machine was started.
pub(super) fn boot_time() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Liveness {
    /// Records a heartbeat that was sent at `sent`, and the time of the database in its answer.
    pub(super) fn record(&self, sent: i64, database_time: i64) {
        let before = self.heard.swap(sent, Ordering::AcqRel);
        if before != NEVER && boot_time() - before > millis(LOST_AFTER) {
            self.regained.store(boot_time(), Ordering::Release);
        }
        // The answer took some time, so the database was asked in the middle.
        let asked = sent + (boot_time() - sent) / 2;
        self.offset.store(database_time - asked, Ordering::Release);
    }

    /// How long this host has not heard from the database.
    pub(super) fn silence(&self) -> Duration {
        let heard = self.heard.load(Ordering::Acquire);
        let silence = u64::try_from(boot_time().saturating_sub(heard));
        Duration::from_millis(silence.unwrap_or(0))
    }

    /// Whether this host may declare others dead.
    pub(super) fn judges(&self) -> bool {
        let regained = self.regained.load(Ordering::Acquire);
        let since = boot_time().saturating_sub(regained);
        self.silence() <= LOST_AFTER && since >= millis(JUDGES_AFTER)
    }
}

impl Clock for Liveness {
    fn now(&self) -> Millis {
        let offset = self.offset.load(Ordering::Acquire);
        if offset == NEVER {
            return self.system.now();
        }
        let now = boot_time().saturating_add(offset);
        let before = self.latest.fetch_max(now, Ordering::Relaxed);
        Millis(u64::try_from(now.max(before)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_that_lost_the_database_judges_nobody_for_a_while() {
        let liveness = Liveness::default();
        assert!(!liveness.judges());
        liveness.record(boot_time(), 0);
        assert!(liveness.judges());
        // Time passes without a heartbeat.
        liveness.heard.fetch_sub(4_000, Ordering::Relaxed);
        assert!(!liveness.judges());
        liveness.record(boot_time(), 0);
        assert!(!liveness.judges());
        liveness.regained.fetch_sub(15_000, Ordering::Relaxed);
        assert!(liveness.judges());
    }

    #[test]
    fn time_is_that_of_the_database_and_never_goes_back() {
        let liveness = Liveness::default();
        liveness.record(boot_time(), 5_000_000);
        let first = liveness.now();
        assert!((5_000_000..5_010_000).contains(&first.0), "{first:?}");
        liveness.record(boot_time(), 4_000_000);
        assert!(liveness.now() >= first);
    }
}
