//! How many requests callers may send to this server.
//!
//! Each token has a bucket that fills at the rate of the server. A user and an organisation have
//! one each if their [quota](rye_engine::quotas::Quota) has a rate. A request takes one drop of
//! each; without one it is refused with the time after which there is one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use rye_engine::quotas::SubjectKind;

use crate::auth::Principal;
use crate::problem::Problem;
use crate::server::App;

/// How long the rates of quotas are known without being read again.
const QUOTA_LIFETIME: Duration = Duration::from_secs(5);

/// How many buckets are kept. Full buckets are forgotten first.
const MAX_BUCKETS: usize = 10_000;

/// The rates of the callers of this server.
pub(crate) struct Rates {
    /// Requests of a token in a second.
    per_token: u32,
    buckets: Mutex<HashMap<String, Bucket>>,
    /// Rates of the quotas of a user and an organisation.
    quotas: Mutex<HashMap<Owner, (Instant, Vec<Rate>)>>,
}

/// A user and an organisation.
type Owner = (Option<String>, Option<String>);

/// A limit of one bucket.
#[derive(Debug, Clone, PartialEq)]
struct Rate {
    bucket: String,
    /// Requests in a second.
    per_second: f64,
    /// Requests at once.
    burst: f64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    drops: f64,
    at: Instant,
    rate: f64,
    burst: f64,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.drops = (self.drops + passed * self.rate).min(self.burst);
        self.at = now;
    }
}

impl Rates {
    pub(crate) fn new(per_token: u32) -> Self {
        Self {
            per_token,
            buckets: Mutex::default(),
            quotas: Mutex::default(),
        }
    }

    /// Reads the quotas again at the next request.
    pub(crate) fn forget_quotas(&self) {
        self.quotas.lock().clear();
    }

    /// Counts a request. Fails if its caller sends too many.
    pub(crate) async fn check(&self, app: &App, who: &Principal) -> Result<(), Problem> {
        let token = who.token();
        let per_token = f64::from(self.per_token);
        let mut rates = vec![Rate {
            bucket: format!("token {}", token.id),
            per_second: per_token,
            burst: 2.0 * per_token,
        }];
        if token.user.is_some() || token.org.is_some() {
            rates.extend(
                self.of_quotas(app, (token.user.clone(), token.org.clone()))
                    .await?,
            );
        }
        self.take(&rates, Instant::now()).map_err(|(bucket, wait)| {
            let detail = format!("too many requests of the {bucket}");
            let seconds = wait.as_secs_f64().ceil();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small positive number"
            )]
            let seconds = (seconds as u64).max(1);
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(seconds)
        })
    }

    async fn of_quotas(&self, app: &App, owner: Owner) -> Result<Vec<Rate>, Problem> {
        let known = self.quotas.lock().get(&owner).cloned();
        if let Some((at, rates)) = known
            && at.elapsed() < QUOTA_LIFETIME
        {
            return Ok(rates);
        }
        let Some(quotas) = app.engine().quotas() else {
            return Ok(Vec::new());
        };
        let found = quotas
            .of_owner(owner.0.as_deref(), owner.1.as_deref())
            .await?;
        let rates: Vec<_> = found
            .into_iter()
            .filter_map(|(subject, quota)| {
                let per_minute = f64::from(quota.requests_per_minute?);
                let kind = match subject.kind {
                    SubjectKind::User => "user",
                    SubjectKind::Org => "organisation",
                };
                Some(Rate {
                    bucket: format!("{kind} {}", subject.name),
                    per_second: per_minute / 60.0,
                    burst: per_minute,
                })
            })
            .collect();
        let mut known = self.quotas.lock();
        if known.len() >= MAX_BUCKETS {
            known.clear();
        }
        known.insert(owner, (Instant::now(), rates.clone()));
        Ok(rates)
    }

    /// Takes a drop of each bucket, or of none. The error names the empty bucket, and the time after
    /// which it has a drop.
    fn take(&self, rates: &[Rate], now: Instant) -> Result<(), (String, Duration)> {
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_BUCKETS {
            buckets.retain(|_, bucket| {
                bucket.fill(now);
                bucket.drops < bucket.burst
            });
        }
        for rate in rates {
            let bucket = buckets.entry(rate.bucket.clone()).or_insert(Bucket {
                drops: rate.burst,
                at: now,
                rate: rate.per_second,
                burst: rate.burst,
            });
            (bucket.rate, bucket.burst) = (rate.per_second, rate.burst);
            bucket.fill(now);
            if bucket.drops < 1.0 {
                let wait = (1.0 - bucket.drops) / rate.per_second.max(f64::MIN_POSITIVE);
                let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
                return Err((rate.bucket.clone(), wait));
            }
        }
        for rate in rates {
            if let Some(bucket) = buckets.get_mut(&rate.bucket) {
                bucket.drops -= 1.0;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bucket: &str, per_second: f64, burst: f64) -> Rate {
        let bucket = bucket.to_owned();
        Rate {
            bucket,
            per_second,
            burst,
        }
    }

    #[test]
    fn empty_bucket_says_when_it_has_a_drop_and_costs_the_others_nothing() {
        let rates = Rates::new(1);
        let start = Instant::now();
        let both = [rate("token", 10.0, 10.0), rate("user", 0.5, 2.0)];
        assert_eq!(rates.take(&both, start), Ok(()));
        assert_eq!(rates.take(&both, start), Ok(()));
        let refused = Err(("user".to_owned(), Duration::from_secs(2)));
        assert_eq!(rates.take(&both, start), refused);
        for _ in 0..8 {
            assert_eq!(rates.take(&both[..1], start), Ok(()));
        }
        assert!(rates.take(&both[..1], start).is_err());
        assert_eq!(rates.take(&both, start + Duration::from_secs(2)), Ok(()));
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let rates = Rates::new(1);
        let start = Instant::now();
        for number in 0..MAX_BUCKETS {
            let one = rate(&number.to_string(), 100.0, 100.0);
            assert_eq!(rates.take(&[one], start), Ok(()));
        }
        let later = start + Duration::from_secs(1);
        assert_eq!(rates.take(&[rate("new", 1.0, 1.0)], later), Ok(()));
        assert_eq!(rates.buckets.lock().len(), 1);
    }
}
