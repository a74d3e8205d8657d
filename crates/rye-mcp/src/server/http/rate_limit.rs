//! Rate limit per client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Number of addresses at which idle ones are removed.
const CLEANUP_THRESHOLD: usize = 4096;

/// A token bucket per address with a capacity of two seconds of requests.
pub(super) struct RateLimiter {
    /// Time in which one request becomes available.
    interval: Duration,
    buckets: Mutex<HashMap<IpAddr, Instant>>,
}

impl RateLimiter {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            buckets: Mutex::default(),
        }
    }

    /// Counts a request. `None` if it is allowed, otherwise how long the client should wait.
    pub(super) fn check(&self, address: IpAddr) -> Option<Duration> {
        self.check_at(address, Instant::now())
    }

    fn check_at(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        const BURST: Duration = Duration::from_secs(2);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= CLEANUP_THRESHOLD {
            buckets.retain(|_, full_at| *full_at > now);
        }
        // When the bucket is full again.
        let full_at = buckets.entry(address).or_insert(now);
        let next = (*full_at).max(now) + self.interval;
        let wait = (next - now).checked_sub(BURST).filter(|it| !it.is_zero());
        if wait.is_none() {
            *full_at = next;
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_of_two_seconds_is_allowed_then_the_rate() {
        let (rate, start) = (RateLimiter::new(10), Instant::now());
        let one: IpAddr = [10, 0, 0, 1].into();
        let other: IpAddr = [10, 0, 0, 2].into();
        for _ in 0..20 {
            assert_eq!(rate.check_at(one, start), None);
        }
        assert_eq!(rate.check_at(one, start), Some(Duration::from_millis(100)));
        assert_eq!(rate.check_at(other, start), None);
        let later = start + Duration::from_millis(100);
        assert_eq!(rate.check_at(one, later), None);
        assert!(rate.check_at(one, later).is_some());
    }
}
