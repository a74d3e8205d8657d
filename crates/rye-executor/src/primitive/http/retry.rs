//! Retry policy: which responses to retry, and after which delay.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::Response;
use reqwest::header::RETRY_AFTER;

/// First delay; it doubles with every attempt.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Delay after the attempt with this number, counted from 0.
pub(super) fn backoff(attempt: u64) -> Duration {
    let doubled = u32::try_from(attempt)
        .ok()
        .and_then(|n| 2_u32.checked_pow(n));
    doubled.map_or(MAX_DELAY, |times| {
        FIRST_DELAY.saturating_mul(times).min(MAX_DELAY)
    })
}

/// Delay before a retry, if the status code says that the error may be temporary.
pub(super) fn after_response(response: &Response, attempt: u64) -> Option<Duration> {
    if !matches!(response.status().as_u16(), 429 | 502..=504) {
        return None;
    }
    let requested = response.headers().get(RETRY_AFTER);
    let requested = requested.and_then(|value| retry_after(value.to_str().ok()?, Timestamp::now()));
    Some(requested.unwrap_or_else(|| backoff(attempt)))
}

/// Parses a `Retry-After` header: seconds or a date.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_a_limit() {
        let delays: Vec<_> = (0..4).map(|n| backoff(n).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600]);
        assert_eq!(backoff(40), MAX_DELAY);
        assert_eq!(backoff(u64::MAX), MAX_DELAY);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "1994-11-06T08:49:30Z".parse().unwrap();
        for (text, seconds) in [
            ("3", Some(3)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(text, now), expected, "{text}");
        }
    }
}
