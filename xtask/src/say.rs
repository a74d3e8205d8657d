//! The one place that prints, and how durations and tables look.

use std::time::Duration;

/// Prints a line for the person at the terminal.
macro_rules! say {
    ($($part:tt)*) => { $crate::say::line(format_args!($($part)*)) };
}
pub(crate) use say;

#[expect(clippy::print_stderr, reason = "this is the printer")]
pub(crate) fn line(text: std::fmt::Arguments<'_>) {
    eprintln!("{text}");
}

/// `0.4 s`, `12.0 s`, `3 min 05 s`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else {
        let whole = (time + Duration::from_millis(500)).as_secs();
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// Rows of a name and a time, the times aligned on the right, the sum last.
pub(crate) fn times(rows: &[(&str, Duration)]) -> String {
    let total = rows.iter().map(|(_, time)| *time).sum();
    let rows = rows.iter().copied().chain([("total", total)]);
    let rows: Vec<_> = rows.map(|(name, time)| (name, duration(time))).collect();
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let times = rows.iter().map(|(_, time)| time.len()).max().unwrap_or(0);
    let lines: Vec<_> = rows
        .iter()
        .map(|(name, time)| format!("  {name:names$}  {time:>times$}"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well_from_a_blink_to_an_hour() {
        for (milliseconds, text) in [
            (0, "0.0 s"),
            (449, "0.4 s"),
            (99_940, "99.9 s"),
            (99_960, "1 min 40 s"),
            (184_600, "3 min 05 s"),
            (3_599_700, "60 min 00 s"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn times_are_aligned_and_summed() {
        let rows = [
            ("format", Duration::from_millis(500)),
            ("tests", Duration::from_mins(2)),
        ];
        assert_eq!(
            times(&rows),
            "  format       0.5 s\n  tests   2 min 00 s\n  total   2 min 01 s"
        );
    }
}
