//! Waiting for something to happen elsewhere: a file to change, a recorded run to end.
//!
//! To wait for a process, see [`Handle::wait`](crate::process::Handle::wait).

mod paths;
#[cfg(feature = "watch-db")]
mod run;

pub use paths::{Change, ChangeKind, WatchError, paths};
#[cfg(feature = "watch-db")]
pub use run::{ENDED, RunError, run};

use std::time::{Duration, Instant};

/// A moment after which waiting is over, if there is one.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The time left, but no more than `longest`.
    fn left_within(self, longest: Duration) -> Duration {
        self.0.map_or(longest, |deadline| {
            deadline
                .saturating_duration_since(Instant::now())
                .min(longest)
        })
    }

    fn has_passed(self) -> bool {
        self.0.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
