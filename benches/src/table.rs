//! What was measured, and how it is shown.

/// One figure beside its floor.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was done, in a few words.
    pub what: String,
    /// What it took here.
    pub ours: f64,
    /// What the least took that could do the same job, in the same run.
    pub floor: f64,
    /// The ratio of the two that is still good; [`NO_GOAL`] where it is only told.
    pub goal: f64,
    /// What both are counted in.
    pub unit: Unit,
}

/// The goal of a row that is there to be compared with others.
pub const NO_GOAL: f64 = f64::INFINITY;

/// What a row's figures are counted in.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    Seconds,
    /// Things: descriptors, processes.
    Pieces,
    Bytes,
}

impl Unit {
    fn show(self, amount: f64) -> String {
        match self {
            Self::Seconds => seconds(amount),
            Self::Pieces => format!("{amount:.0}"),
            Self::Bytes => format!("{:.1} MiB", amount / f64::from(1 << 20)),
        }
    }
}

impl Row {
    /// A row of seconds.
    pub fn time(what: &str, (floor, ours): (f64, f64), goal: f64) -> Self {
        Self {
            what: what.to_owned(),
            ours,
            floor,
            goal,
            unit: Unit::Seconds,
        }
    }

    fn ratio(&self) -> f64 {
        self.ours / self.floor
    }

    /// Whether the goal is missed. A ratio that is no number misses it.
    pub fn is_over(&self) -> bool {
        self.ratio().is_nan() || self.ratio() > self.goal
    }
}

/// The table as text, columns aligned.
pub fn render(rows: &[Row]) -> String {
    let head = ["what", "floor", "ours", "ratio", "goal", ""].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        [
            row.what.clone(),
            row.unit.show(row.floor),
            row.unit.show(row.ours),
            format!("{:.2}", row.ratio()),
            match row.goal {
                NO_GOAL => "-".to_owned(),
                goal => format!("{goal:.2}"),
            },
            match (row.is_over(), row.goal) {
                (true, _) => "OVER",
                (false, NO_GOAL) => "told",
                (false, _) => "ok",
            }
            .to_owned(),
        ]
    });
    let lines: Vec<_> = [head].into_iter().chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let lines = lines.iter().map(|[what, numbers @ .., verdict]| {
        let numbers = numbers.iter().zip(&widths[1..]);
        let numbers: Vec<_> = numbers
            .map(|(number, width)| format!("{number:>width$}"))
            .collect();
        let line = format!("{what:0$}  {1}  {verdict}", widths[0], numbers.join("  "));
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Three figures and the unit that suits: `1.23 ms`, `456 µs`.
fn seconds(time: f64) -> String {
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
    fn times_have_three_figures_and_the_unit_that_suits() {
        for (time, text) in [
            (2.0, "2.00 s"),
            (0.012_34, "12.3 ms"),
            (0.999_6, "1.00 s"),
            (4.56e-4, "456 µs"),
            (7e-9, "7.00 ns"),
            (0.0, "0.00 ns"),
        ] {
            assert_eq!(seconds(time), text);
        }
    }

    #[test]
    fn the_table_is_aligned_and_says_what_is_over() {
        let row = |what, ours, goal| Row::time(what, (0.001, ours), goal);
        let rows = [
            row("a µ-thing", 0.001_1, 1.15),
            row("another thing", 0.012, 2.5),
            row("a third", 0.5, NO_GOAL),
        ];
        assert_eq!(
            render(&rows),
            "what             floor     ours   ratio  goal\n\
             a µ-thing      1.00 ms  1.10 ms    1.10  1.15  ok\n\
             another thing  1.00 ms  12.0 ms   12.00  2.50  OVER\n\
             a third        1.00 ms   500 ms  500.00     -  told"
        );
    }

    #[test]
    fn a_floor_of_nothing_is_not_a_goal_met() {
        assert!(Row::time("", (0.0, 0.0), 1.0).is_over());
        assert!(Row::time("", (0.0, 0.0), NO_GOAL).is_over());
    }
}
