//! Wall clock and monotonic clock, timestamps as text, and deadlines.

use std::time::{Duration, Instant};

use jiff::{Timestamp, Unit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One reading of the wall clock and the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClockReading {
    /// Wall clock in UTC, ISO 8601 with milliseconds: `2026-04-10T03:28:17.042Z`.
    pub iso: String,
    /// Wall clock as milliseconds since 1970-01-01T00:00:00Z.
    pub epoch_ms: i64,
    /// Nanoseconds since boot: never decreases, and is the same in all processes of the
    /// machine.
    pub monotonic_ns: u64,
}

/// Reads both clocks.
pub fn now() -> ClockReading {
    let wall = Timestamp::now();
    ClockReading {
        iso: format!("{wall:.3}"),
        epoch_ms: wall.as_millisecond(),
        monotonic_ns: u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// The current time in UTC with second precision, `2026-04-10T03:28:17Z`, as in signature
/// lines.
pub fn now_rfc3339() -> String {
    let wall = Timestamp::now();
    format!("{:.0}", wall.round(Unit::Second).unwrap_or(wall))
}

/// The current time as a sortable file name, `20260410-032817-0ac2`: date, time, and the
/// fraction of the second in units of 1/65536. Two calls within about 15 µs may return the
/// same name.
pub fn sortable_stamp() -> String {
    let wall = Timestamp::now();
    let part = u64::from(wall.subsec_nanosecond().unsigned_abs()) * (1 << 16) / 1_000_000_000;
    format!("{}-{part:04x}", wall.strftime("%Y%m%d-%H%M%S"))
}

/// Formats seconds since 1970-01-01T00:00:00Z like [`now_rfc3339`].
pub fn format_rfc3339(epoch_seconds: i64) -> String {
    let wall = Timestamp::from_second(epoch_seconds).unwrap_or_default();
    format!("{wall:.0}")
}

/// Time since boot, from the monotonic clock.
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// An optional point in time at which waiting ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// A timeout that exceeds the range of the clock counts as none.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The remaining time, capped at `limit`.
    pub(crate) fn remaining_up_to(self, limit: Duration) -> Duration {
        self.0.map_or(limit, |deadline| {
            deadline
                .saturating_duration_since(Instant::now())
                .min(limit)
        })
    }

    pub(crate) fn has_passed(self) -> bool {
        self.0.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_with_the_standard_library_and_do_not_decrease() {
        let before = std::time::SystemTime::now();
        let (first, second) = (now(), now());
        let after = std::time::SystemTime::now();
        let ms = |t: std::time::SystemTime| {
            i64::try_from(t.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
        };
        assert!((ms(before)..=ms(after)).contains(&first.epoch_ms));
        assert!(second.monotonic_ns >= first.monotonic_ns);
        let read_back: Timestamp = first.iso.parse().unwrap();
        assert_eq!(read_back.as_millisecond(), first.epoch_ms);
        assert_eq!(now_rfc3339().len(), "2026-04-10T03:28:17Z".len());
    }

    #[test]
    fn sortable_stamps_sort_in_order_of_creation() {
        let mut before = sortable_stamp();
        assert_eq!(before.len(), "20260410-032817-0ac2".len());
        for _ in 0..1000 {
            let name = sortable_stamp();
            assert!(name >= before, "{name} after {before}");
            before = name;
        }
    }
}
