//! Metrics: durations and counts of model calls, tools, gates and more, in the Prometheus text
//! format.
//!
//! Each measured operation is also a [tracing] span of the same name with its ids, for exporters
//! such as OpenTelemetry.
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
use std::time::Duration;

use parking_lot::Mutex;

/// Upper bounds of the histogram buckets, in seconds: from a turn in memory to a decision that
/// takes a day.
const BOUNDS: [f64; 14] = [
    0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0, 86_400.0,
];

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// A model call, by `model` and `outcome`.
    LlmCall,
    /// A tool call, by `tool` and `outcome`.
    ToolExec,
    /// The time a prompt waited in the queue.
    QueueWait,
    /// A turn, from its start in this process, by `reason`.
    TurnComplete,
    /// The time until a gate closed, by `status`.
    DecisionGateWait,
    /// A command in the sandbox, by `outcome`.
    SandboxExec,
    /// A switch to another model, by `from` and `to`; a counter.
    ModelFailover,
    /// A compaction, by `outcome`.
    Compaction,
}

impl Metric {
    /// All metrics.
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

    /// Name of the span, and part of the Prometheus name.
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
            Self::LlmCall => "Duration of model calls.",
            Self::ToolExec => "Duration of tool calls, including waits for decisions.",
            Self::QueueWait => "Time that prompts waited in the queue.",
            Self::TurnComplete => "Duration of turns.",
            Self::DecisionGateWait => "Time until gates were closed.",
            Self::SandboxExec => "Duration of commands in the sandbox.",
            Self::ModelFailover => "Number of switches to another model.",
            Self::Compaction => "Duration of compactions.",
        }
    }
}

/// Label names and values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// All observations since it was created.
#[derive(Debug, Default)]
pub struct Metrics {
    series: Mutex<BTreeMap<(Metric, String), Series>>,
}

#[derive(Debug, Clone, Default)]
struct Series {
    /// Number of observations up to each bound.
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Metrics {
    /// Records one observation.
    pub fn observe(&self, metric: Metric, labels: Labels<'_>, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let mut series = self.series.lock();
        let series = series.entry((metric, format_labels(labels))).or_default();
        series.count += 1;
        series.seconds += seconds;
        for (within, bound) in series.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(seconds <= bound);
        }
    }

    /// All metrics in the Prometheus text format.
    pub fn prometheus(&self) -> String {
        let series = self.series.lock();
        let mut text = String::new();
        for metric in Metric::ALL {
            let matching = series.range((metric, String::new())..);
            let matching = matching.take_while(|((of, _), _)| *of == metric);
            let matching: Vec<_> = matching
                .map(|((_, labels), series)| (labels, series))
                .collect();
            if matching.is_empty() {
                continue;
            }
            let (name, help) = (full_name(metric), metric.help());
            let is_counter = metric == Metric::ModelFailover;
            let kind = if is_counter { "counter" } else { "histogram" };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, series) in matching {
                if is_counter {
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

/// Labels in Prometheus syntax, without braces.
fn format_labels(labels: Labels<'_>) -> String {
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
    fn observation_counts_in_every_bucket_above_it() {
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
    fn failover_is_a_counter_and_label_values_are_escaped() {
        let metrics = Metrics::default();
        let labels: Labels<'_> = &[("from", "a\"b"), ("to", "c\\d\ne")];
        metrics.observe(Metric::ModelFailover, labels, Duration::ZERO);
        let line = r#"rye_model_failover_total{from="a\"b",to="c\\d\ne"} 1"#;
        assert!(metrics.prometheus().lines().any(|it| it == line));
    }

    #[test]
    fn unobserved_metrics_are_omitted() {
        assert_eq!(Metrics::default().prometheus(), "");
    }
}
