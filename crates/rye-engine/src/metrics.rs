//! Metrics: durations and counts of model calls, tools, gates and more, in the Prometheus text
//! format (`OpenMetrics`).
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
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use strum::{EnumIter, IntoEnumIterator as _, IntoStaticStr};

/// Upper bounds of the histogram buckets, in seconds: from a turn in memory to a decision that
/// takes a day.
const BOUNDS: [f64; 14] = [
    0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0, 86_400.0,
];

/// A measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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
    /// Name of the span, and part of the Prometheus name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn help(self) -> &'static str {
        match self {
            Self::LlmCall => "Duration of model calls",
            Self::ToolExec => "Duration of tool calls, including waits for decisions",
            Self::QueueWait => "Time that prompts waited in the queue",
            Self::TurnComplete => "Duration of turns",
            Self::DecisionGateWait => "Time until gates were closed",
            Self::SandboxExec => "Duration of commands in the sandbox",
            Self::ModelFailover => "Number of switches to another model",
            Self::Compaction => "Duration of compactions",
        }
    }
}

/// Label names and values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

type LabelSet = Vec<(&'static str, String)>;
type Histograms = Family<LabelSet, Histogram, fn() -> Histogram>;

/// All observations since it was created.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// The only duration without labels.
    queue_wait: Histogram,
    durations: BTreeMap<Metric, Histograms>,
    failovers: Family<LabelSet, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("rye");
        let (queue_wait, failovers) = (Histogram::new(BOUNDS), Family::default());
        let mut durations = BTreeMap::new();
        for metric in Metric::iter() {
            let (name, help) = (metric.name(), metric.help());
            match metric {
                Metric::ModelFailover => registry.register(name, help, failovers.clone()),
                Metric::QueueWait => {
                    registry.register_with_unit(name, help, Unit::Seconds, queue_wait.clone());
                }
                _ => {
                    let family = Histograms::new_with_constructor(|| Histogram::new(BOUNDS));
                    registry.register_with_unit(name, help, Unit::Seconds, family.clone());
                    durations.insert(metric, family);
                }
            }
        }
        Self {
            registry,
            queue_wait,
            durations,
            failovers,
        }
    }
}

impl Metrics {
    /// Records one observation.
    pub fn observe(&self, metric: Metric, labels: Labels<'_>, duration: Duration) {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let labels = labels.collect();
        let seconds = duration.as_secs_f64();
        match self.durations.get(&metric) {
            Some(histograms) => histograms.get_or_create(&labels).observe(seconds),
            None if metric == Metric::QueueWait => self.queue_wait.observe(seconds),
            None => drop(self.failovers.get_or_create(&labels).inc()),
        }
    }

    /// All metrics in the Prometheus text format.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
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
                "rye_tool_exec_seconds_bucket{{le=\"{le}\",tool=\"bash\",outcome=\"success\"}} "
            );
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap().to_owned()
        };
        assert_eq!(
            [count("0.001"), count("0.02"), count("0.1")],
            ["1", "1", "2"]
        );
        assert_eq!([count("86400.0"), count("+Inf")], ["2", "3"]);
        let help = "# HELP rye_tool_exec_seconds Duration of tool calls";
        assert!(text.contains(help), "{text}");
    }

    #[test]
    fn failover_is_a_counter_and_label_values_are_escaped() {
        let metrics = Metrics::default();
        let labels: Labels<'_> = &[("from", "a\"b"), ("to", "c\\d\ne")];
        metrics.observe(Metric::ModelFailover, labels, Duration::ZERO);
        let line = r#"rye_model_failover_total{from="a\"b",to="c\\d\ne"} 1"#;
        assert!(metrics.prometheus().lines().any(|it| it == line));
    }
}
