//! How long things take, and how often: counted as they end, and read as Prometheus reads.
//!
//! Each is a [span](tracing) of the same name besides, with the ids that it belongs to, for
//! whoever collects those: OpenTelemetry, for one.
//!
//! ```
//! use std::time::Duration;
//! use rye_engine::metrics::{Metric, Metrics};
//!
//! let metrics = Metrics::default();
//! metrics.observe(Metric::QueueWait, &[], Duration::from_millis(3));
//! let text = metrics.prometheus();
//! assert!(text.contains("rye_queue_wait_seconds_bucket{le=\"0.005\"} 1\n"));
//! assert!(text.contains("rye_queue_wait_seconds_count 1\n"));
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The upper ends of the ranges that times are counted in, in seconds: from a turn in memory
/// to a person who sleeps on it.
const BOUNDS: [f64; 14] = [
    0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0, 86_400.0,
];

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// A call of a model, by `model` and `outcome`.
    LlmCall,
    /// A tool, by `tool` and `outcome`.
    ToolExec,
    /// A prompt, until it began.
    QueueWait,
    /// A turn, from its beginning in this process, by `reason`.
    TurnComplete,
    /// A gate, until it ended, by `status`.
    DecisionGateWait,
    /// A program in the sandbox, by `outcome`.
    SandboxExec,
    /// A model that gave way to another, by `from` and `to`. Only counted.
    ModelFailover,
    /// A history that was summed up, by `outcome`.
    Compaction,
}

impl Metric {
    /// All.
    pub const ALL: [Self; 8] = [
        Self::LlmCall,
        Self::ToolExec,
        Self::QueueWait,
        Self::TurnComplete,
        Self::DecisionGateWait,
        Self::SandboxExec,
        Self::ModelFailover,
        Self::Compaction,
    ];

    /// Its name: of the span, and within that for Prometheus.
    pub fn name(self) -> &'static str {
        match self {
            Self::LlmCall => "llm_call",
            Self::ToolExec => "tool_exec",
            Self::QueueWait => "queue_wait",
            Self::TurnComplete => "turn_complete",
            Self::DecisionGateWait => "decision_gate_wait",
            Self::SandboxExec => "sandbox_exec",
            Self::ModelFailover => "model_failover",
            Self::Compaction => "compaction",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::LlmCall => "How long models took to answer.",
            Self::ToolExec => "How long tools took, waits for people included.",
            Self::QueueWait => "How long prompts waited before they began.",
            Self::TurnComplete => "How long turns took.",
            Self::DecisionGateWait => "How long people took to decide.",
            Self::SandboxExec => "How long programs ran in the sandbox.",
            Self::ModelFailover => "How often a model gave way to another.",
            Self::Compaction => "How long it took to sum histories up.",
        }
    }
}

/// What something is told apart by: names and values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// What was counted since it was made.
#[derive(Debug, Default)]
pub struct Metrics {
    series: Mutex<BTreeMap<(Metric, String), Series>>,
}

#[derive(Debug, Clone, Default)]
struct Series {
    /// How many were at most as long as each bound.
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Metrics {
    /// Counts something that took so long.
    pub fn observe(&self, metric: Metric, labels: Labels<'_>, took: Duration) {
        let seconds = took.as_secs_f64();
        let series = self.series.lock();
        let mut series = series.unwrap_or_else(PoisonError::into_inner);
        let series = series.entry((metric, written(labels))).or_default();
        series.count += 1;
        series.seconds += seconds;
        for (within, bound) in series.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(seconds <= bound);
        }
    }

    /// All of it in the text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let series = self.series.lock();
        let series = series.unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for metric in Metric::ALL {
            let own = series.range((metric, String::new())..);
            let own = own.take_while(|((of, _), _)| *of == metric);
            let own: Vec<_> = own.map(|((_, labels), series)| (labels, series)).collect();
            if own.is_empty() {
                continue;
            }
            let (name, help) = (full_name(metric), metric.help());
            let counted = metric == Metric::ModelFailover;
            let kind = if counted { "counter" } else { "histogram" };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, series) in own {
                if counted {
                    let _ = writeln!(text, "{name}{} {}", braced(labels), series.count);
                } else {
                    histogram(&mut text, &name, labels, series);
                }
            }
        }
        text
    }
}

fn full_name(metric: Metric) -> String {
    let unit = match metric {
        Metric::ModelFailover => "total",
        _ => "seconds",
    };
    format!("rye_{}_{unit}", metric.name())
}

fn histogram(text: &mut String, name: &str, labels: &str, series: &Series) {
    let comma = if labels.is_empty() { "" } else { "," };
    for (within, bound) in series.within.iter().zip(BOUNDS) {
        let _ = writeln!(
            text,
            "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {within}"
        );
    }
    let (count, sum, braced) = (series.count, series.seconds, braced(labels));
    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
    let _ = writeln!(
        text,
        "{name}_sum{braced} {sum}\n{name}_count{braced} {count}"
    );
}

fn braced(labels: &str) -> String {
    match labels {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    }
}

/// Labels as Prometheus reads them, without braces.
fn written(labels: Labels<'_>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_every_range_that_holds_them() {
        let metrics = Metrics::default();
        let labels: Labels<'_> = &[("tool", "bash"), ("outcome", "success")];
        for millis in [1, 90, 700_000_000] {
            metrics.observe(Metric::ToolExec, labels, Duration::from_millis(millis));
        }
        let text = metrics.prometheus();
        let count = |le: &str| {
            let start = format!(
                "rye_tool_exec_seconds_bucket{{tool=\"bash\",outcome=\"success\",le=\"{le}\"}} "
            );
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap().to_owned()
        };
        assert_eq!(
            [count("0.001"), count("0.02"), count("0.1")],
            ["1", "1", "2"]
        );
        assert_eq!([count("86400"), count("+Inf")], ["2", "3"]);
        assert!(text.starts_with("# HELP rye_tool_exec_seconds "), "{text}");
    }

    #[test]
    fn what_is_only_counted_is_a_counter_and_values_cannot_break_a_line() {
        let metrics = Metrics::default();
        let labels: Labels<'_> = &[("from", "a\"b"), ("to", "c\\d\ne")];
        metrics.observe(Metric::ModelFailover, labels, Duration::ZERO);
        let line = r#"rye_model_failover_total{from="a\"b",to="c\\d\ne"} 1"#;
        assert!(metrics.prometheus().lines().any(|it| it == line));
    }

    #[test]
    fn nothing_that_did_not_happen_is_told() {
        assert_eq!(Metrics::default().prometheus(), "");
    }
}
