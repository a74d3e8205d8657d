//! What time it is: a parameter, so that a test can say.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rye_protocol::Millis;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Millis;
}

/// The machine's clock, which is never told to run backwards: where somebody sets it back,
/// it stands until the time has come again.
#[derive(Debug, Default)]
pub struct SystemClock {
    latest: AtomicU64,
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_millis());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let before = self.latest.fetch_max(now, Ordering::Relaxed);
        Millis(now.max(before))
    }
}
