//! Timestamps in milliseconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A wall-clock timestamp: milliseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The timestamp plus a duration.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let more = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(more))
    }

    /// The duration until a later timestamp; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}
