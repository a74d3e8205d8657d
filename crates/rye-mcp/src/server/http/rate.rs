//! How many requests one address may make.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many addresses are remembered before those at rest are forgotten.
const REMEMBERED: usize = 4096;

/// A bucket for each address: it holds two seconds' worth and fills as time goes.
pub(super) struct Rate {
    each: Duration,
    buckets: Mutex<HashMap<IpAddr, Instant>>,
}

impl Rate {
    pub(super) fn new(a_second: u32) -> Self {
        Self {
            each: Duration::from_secs(1) / a_second.max(1),
            buckets: Mutex::default(),
        }
    }

    /// None if a request may be made, else how long to wait.
    pub(super) fn take(&self, from: IpAddr) -> Option<Duration> {
        self.take_at(from, Instant::now())
    }

    fn take_at(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        const BURST: Duration = Duration::from_secs(2);
        let buckets = self.buckets.lock();
        let mut buckets = buckets.unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= REMEMBERED {
            buckets.retain(|_, full_at| *full_at > now);
        }
        // When the bucket will be full again.
        let full_at = buckets.entry(from).or_insert(now);
        let next = (*full_at).max(now) + self.each;
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
    fn an_address_has_two_seconds_worth_at_once_and_then_its_rate() {
        let (rate, start) = (Rate::new(10), Instant::now());
        let one: IpAddr = [10, 0, 0, 1].into();
        let other: IpAddr = [10, 0, 0, 2].into();
        for _ in 0..20 {
            assert_eq!(rate.take_at(one, start), None);
        }
        assert_eq!(rate.take_at(one, start), Some(Duration::from_millis(100)));
        assert_eq!(rate.take_at(other, start), None);
        let later = start + Duration::from_millis(100);
        assert_eq!(rate.take_at(one, later), None);
        assert!(rate.take_at(one, later).is_some());
    }
}
