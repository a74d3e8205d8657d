//! Output to the terminal, and the format of durations and tables.

use std::time::Duration;

/// Prints a line to standard error.
macro_rules! print_line {
    ($($part:tt)*) => { $crate::output::write_line(format_args!($($part)*)) };
}
pub(crate) use print_line;

#[expect(clippy::print_stderr, reason = "the only place that prints")]
pub(crate) fn write_line(text: std::fmt::Arguments<'_>) {
    eprintln!("{text}");
}

/// Formats a duration as `0.4 s`, `12.0 s` or `3 min 05 s`.
pub(crate) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else {
        let seconds = (time + Duration::from_millis(500)).as_secs();
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

/// A table of names and times with their sum.
pub(crate) fn format_times(rows: &[(&str, Duration)]) -> String {
    let total = rows.iter().map(|(_, time)| *time).sum();
    let rows = rows.iter().copied().chain([("total", total)]);
    let rows: Vec<_> = rows
        .map(|(name, time)| (name, format_duration(time)))
        .collect();
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
    fn durations_are_formatted_by_magnitude() {
        for (milliseconds, text) in [
            (0, "0.0 s"),
            (449, "0.4 s"),
            (99_940, "99.9 s"),
            (99_960, "1 min 40 s"),
            (184_600, "3 min 05 s"),
            (3_599_700, "60 min 00 s"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn times_are_aligned_and_summed() {
        let rows = [
            ("format", Duration::from_millis(500)),
            ("tests", Duration::from_mins(2)),
        ];
        assert_eq!(
            format_times(&rows),
            "  format       0.5 s\n  tests   2 min 00 s\n  total   2 min 01 s"
        );
    }
}
