//! What time it is: wall clock and monotonic, read together.

use std::time::{Duration, Instant};

use jiff::{Timestamp, Unit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One reading of both clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Now {
    /// Wall clock in UTC, ISO 8601 with milliseconds: `2026-04-10T03:28:17.042Z`.
    pub iso: String,
    /// Wall clock as milliseconds since 1970-01-01T00:00:00Z.
    pub epoch_ms: i64,
    /// Nanoseconds since boot. Never goes back, is the same for all processes
    /// of the machine, and says nothing about the date.
    pub monotonic_ns: u64,
}

/// Reads the clocks.
pub fn now() -> Now {
    let wall = Timestamp::now();
    Now {
        iso: format!("{wall:.3}"),
        epoch_ms: wall.as_millisecond(),
        monotonic_ns: u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Now in UTC to the second, `2026-04-10T03:28:17Z`: the form that signature lines carry.
pub fn now_seconds() -> String {
    let wall = Timestamp::now();
    format!("{:.0}", wall.round(Unit::Second).unwrap_or(wall))
}

/// Now as a name, `20260410-032817-0ac2`: day, hour, and the part of the second that has
/// passed. Names that are made one after another are in that order; two made within some
/// 15 µs may be the same.
pub fn stamp() -> String {
    let wall = Timestamp::now();
    let part = u64::from(wall.subsec_nanosecond().unsigned_abs()) * (1 << 16) / 1_000_000_000;
    format!("{}-{part:04x}", wall.strftime("%Y%m%d-%H%M%S"))
}

/// A moment given in seconds since 1970, in the same form.
pub fn seconds(epoch: i64) -> String {
    let wall = Timestamp::from_second(epoch).unwrap_or_default();
    format!("{wall:.0}")
}

/// Time since boot.
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// A moment after which waiting is over, if there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// A time so long that it ends beyond the clock never ends.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The time left, but no more than `longest`.
    pub(crate) fn left_within(self, longest: Duration) -> Duration {
        self.0.map_or(longest, |deadline| {
            deadline
                .saturating_duration_since(Instant::now())
                .min(longest)
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
    fn the_clocks_agree_with_the_standard_library_and_do_not_go_back() {
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
        assert_eq!(now_seconds().len(), "2026-04-10T03:28:17Z".len());
    }

    #[test]
    fn names_say_when_and_are_in_the_order_in_which_they_were_made() {
        let mut before = stamp();
        assert_eq!(before.len(), "20260410-032817-0ac2".len());
        for _ in 0..1000 {
            let name = stamp();
            assert!(name >= before, "{name} after {before}");
            before = name;
        }
    }
}
