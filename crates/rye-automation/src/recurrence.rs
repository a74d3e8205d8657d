//! When a schedule is due: a cron expression in a time zone.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use rye_protocol::Millis;

use crate::error::AutomationError;

/// A cron expression in a time zone.
///
/// Daylight saving time follows Vixie cron. A time that the clock skips is made up for at the end
/// of the gap; a time that occurs twice counts once. An expression whose minute or hour is `*` or a
/// step stands for an interval instead, which follows the elapsed time.
#[derive(Clone)]
pub struct Recurrence {
    cron: Cron,
    zone: TimeZone,
}

impl Recurrence {
    /// Parses a cron expression with five fields, or a nickname such as `@daily`, and the name of a
    /// time zone such as `Europe/Berlin`. Fails if no time ever matches.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, AutomationError> {
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed);
        let cron = parser.build().parse(expression).map_err(|error| {
            let (expression, reason) = (expression.to_owned(), error.to_string());
            AutomationError::InvalidCron { expression, reason }
        })?;
        let unknown = |_| AutomationError::UnknownTimeZone(zone.to_owned());
        let zone = TimeZone::get(zone).map_err(unknown)?;
        let this = Self { cron, zone };
        // A leap day may be eight years away.
        if this.next_after(Millis(0)).is_none() {
            return Err(AutomationError::NeverDue(expression.to_owned()));
        }
        Ok(this)
    }

    /// The first time after `after` at which it is due.
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        let start = i64::try_from(after.0).ok()?;
        let start = Timestamp::from_millisecond(start).ok()?;
        let start = Zoned::new(start, self.zone.clone());
        let next = self.cron.find_next_occurrence(&start, false).ok()?;
        u64::try_from(next.timestamp().as_millisecond())
            .ok()
            .map(Millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which an expression is due after a time, in UTC.
    fn due(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let recurrence = Recurrence::parse(expression, zone).unwrap();
        let after: Timestamp = after.parse().unwrap();
        let mut now = Millis(u64::try_from(after.as_millisecond()).unwrap());
        let mut times = Vec::new();
        for _ in 0..count {
            now = recurrence.next_after(now).unwrap();
            let time = Timestamp::from_millisecond(now.0.cast_signed()).unwrap();
            times.push(time.strftime("%m-%d %H:%M").to_string());
        }
        times
    }

    #[test]
    fn expression_is_evaluated_in_its_time_zone() {
        assert_eq!(
            due(
                "30 9 * * MON-FRI",
                "Asia/Kolkata",
                "2026-11-19T04:00:00Z",
                3
            ),
            ["11-20 04:00", "11-23 04:00", "11-24 04:00"]
        );
        assert_eq!(
            due("@daily", "America/New_York", "2026-11-19T04:00:00Z", 2),
            ["11-19 05:00", "11-20 05:00"]
        );
        assert_eq!(
            due("0 0 29 2 *", "UTC", "2026-11-19T04:00:00Z", 2),
            ["02-29 00:00", "02-29 00:00"]
        );
        assert_eq!(
            due("0 12 L * *", "UTC", "2027-01-31T12:00:00Z", 2),
            ["02-28 12:00", "03-31 12:00"]
        );
    }

    /// In Berlin, the clock goes from 02:00 to 03:00 on 28 March 2027, at 01:00 UTC.
    #[test]
    fn skipped_time_is_made_up_for_at_the_end_of_the_gap() {
        assert_eq!(
            due("30 2 * * *", "Europe/Berlin", "2027-03-26T12:00:00Z", 3),
            ["03-27 01:30", "03-28 01:00", "03-29 00:30"]
        );
        // An interval follows the elapsed time.
        assert_eq!(
            due("*/30 * * * *", "Europe/Berlin", "2027-03-28T00:15:00Z", 4),
            ["03-28 00:30", "03-28 01:00", "03-28 01:30", "03-28 02:00"]
        );
    }

    /// In Berlin, the clock goes from 03:00 to 02:00 on 31 October 2027, at 01:00 UTC.
    #[test]
    fn time_that_occurs_twice_counts_once() {
        assert_eq!(
            due("30 2 * * *", "Europe/Berlin", "2027-10-29T12:00:00Z", 3),
            ["10-30 00:30", "10-31 00:30", "11-01 01:30"]
        );
        // Also for a server that starts between the two.
        assert_eq!(
            due("30 2 * * *", "Europe/Berlin", "2027-10-31T00:45:00Z", 1),
            ["11-01 01:30"]
        );
        assert_eq!(
            due("*/30 * * * *", "Europe/Berlin", "2027-10-31T00:15:00Z", 4),
            ["10-31 00:30", "10-31 01:00", "10-31 01:30", "10-31 02:00"]
        );
    }

    /// Lord Howe Island moves its clock by half an hour.
    #[test]
    fn half_hour_changes_are_handled() {
        assert_eq!(
            due(
                "15 2 * * *",
                "Australia/Lord_Howe",
                "2026-10-02T20:00:00Z",
                2
            ),
            ["10-03 15:30", "10-04 15:15"]
        );
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for (expression, zone) in [
            ("", "UTC"),
            ("* * * *", "UTC"),
            ("* * * * * *", "UTC"),
            ("60 * * * *", "UTC"),
            ("* * * * FOO", "UTC"),
            ("@reboot", "UTC"),
            ("0 0 30 2 *", "UTC"),
            ("0 0 * * *", "Mars/Olympus"),
            ("0 0 * * *", ""),
            ("0 0 * * *", "../../etc/passwd"),
        ] {
            let parsed = Recurrence::parse(expression, zone);
            assert!(parsed.is_err(), "{expression} {zone}");
        }
    }
}
