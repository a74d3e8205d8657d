//! The table of results.

/// A measurement and its baseline.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was measured, and the baseline.
    pub name: String,
    /// Our result.
    pub ours: f64,
    /// Result of the baseline in the same run, or a fixed budget.
    pub baseline: f64,
    /// Highest acceptable ratio; [`NO_GOAL`] for information only.
    pub goal: f64,
    /// Unit of both results.
    pub unit: Unit,
}

/// Goal of a row that is for information only.
pub const NO_GOAL: f64 = f64::INFINITY;

/// Unit of a row.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    Seconds,
    /// A number of things, such as descriptors.
    Count,
    Bytes,
}

impl Unit {
    fn format(self, amount: f64) -> String {
        match self {
            Self::Seconds => format_seconds(amount),
            Self::Count => format!("{amount:.0}"),
            Self::Bytes => format!("{:.1} MiB", amount / f64::from(1 << 20)),
        }
    }
}

impl Row {
    /// A row in seconds.
    pub fn time(name: &str, (baseline, ours): (f64, f64), goal: f64) -> Self {
        Self {
            name: name.to_owned(),
            ours,
            baseline,
            goal,
            unit: Unit::Seconds,
        }
    }

    fn ratio(&self) -> f64 {
        self.ours / self.baseline
    }

    /// Whether the goal is missed. NaN misses it.
    pub fn misses_goal(&self) -> bool {
        self.ratio().is_nan() || self.ratio() > self.goal
    }
}

/// Formats the table with aligned columns.
pub fn render(rows: &[Row]) -> String {
    let head = ["benchmark", "baseline", "ours", "ratio", "goal", ""].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        [
            row.name.clone(),
            row.unit.format(row.baseline),
            row.unit.format(row.ours),
            format!("{:.2}", row.ratio()),
            match row.goal {
                NO_GOAL => "-".to_owned(),
                goal => format!("{goal:.2}"),
            },
            match (row.misses_goal(), row.goal) {
                (true, _) => "MISSED",
                (false, NO_GOAL) => "info",
                (false, _) => "ok",
            }
            .to_owned(),
        ]
    });
    let lines: Vec<_> = [head].into_iter().chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let lines = lines.iter().map(|[name, numbers @ .., verdict]| {
        let numbers = numbers.iter().zip(&widths[1..]);
        let numbers: Vec<_> = numbers
            .map(|(number, width)| format!("{number:>width$}"))
            .collect();
        let line = format!("{name:0$}  {1}  {verdict}", widths[0], numbers.join("  "));
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats seconds with three digits and a suitable unit: `1.23 ms`, `456 µs`.
fn format_seconds(time: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let fits = units.into_iter().find(|(unit, _)| time >= 0.9995 * unit);
    let (unit, name) = fits.unwrap_or((1e-9, "ns"));
    let amount = time / unit;
    let digits = match amount {
        _ if amount < 9.995 => 2,
        _ if amount < 99.95 => 1,
        _ => 0,
    };
    format!("{amount:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_suitable_unit() {
        for (time, text) in [
            (2.0, "2.00 s"),
            (0.012_34, "12.3 ms"),
            (0.999_6, "1.00 s"),
            (4.56e-4, "456 µs"),
            (7e-9, "7.00 ns"),
            (0.0, "0.00 ns"),
        ] {
            assert_eq!(format_seconds(time), text);
        }
    }

    #[test]
    fn table_is_aligned_and_marks_missed_goals() {
        let row = |name, ours, goal| Row::time(name, (0.001, ours), goal);
        let rows = [
            row("a µ-thing", 0.001_1, 1.15),
            row("another thing", 0.012, 2.5),
            row("a third", 0.5, NO_GOAL),
        ];
        assert_eq!(
            render(&rows),
            "benchmark      baseline     ours   ratio  goal\n\
             a µ-thing       1.00 ms  1.10 ms    1.10  1.15  ok\n\
             another thing   1.00 ms  12.0 ms   12.00  2.50  MISSED\n\
             a third         1.00 ms   500 ms  500.00     -  info"
        );
    }

    #[test]
    fn baseline_of_zero_misses_the_goal() {
        assert!(Row::time("", (0.0, 0.0), 1.0).misses_goal());
        assert!(Row::time("", (0.0, 0.0), NO_GOAL).misses_goal());
    }
}
