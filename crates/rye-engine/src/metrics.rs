//! Metrics: durations and counts of model calls, tools, gates and more, tokens and cost, in the
//! Prometheus text format (`OpenMetrics`).
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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use rye_protocol::Usage;
use strum::{EnumIter, IntoEnumIterator as _, IntoStaticStr};

/// Upper bounds of the histogram buckets, in seconds: from a turn in memory to a decision that
/// takes a day.
const BOUNDS: [f64; 14] = [
    0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0, 86_400.0,
];

/// Maximum number of values of a label, and their maximum length in bytes. Others are `other`, so
/// that names chosen by users and models do not make a server's metrics grow without bound.
const MAX_VALUES: usize = 200;
const MAX_VALUE_LEN: usize = 128;
const OTHER: &str = "other";

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
    tokens: Family<LabelSet, Counter>,
    cost: Family<LabelSet, Counter<f64, AtomicU64>>,
    queued: Gauge,
    /// Known values of each label.
    values: Mutex<BTreeMap<&'static str, BTreeSet<String>>>,
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
        let (tokens, cost, queued) = (Family::default(), Family::default(), Gauge::default());
        let help = "Number of tokens, by kind; cached ones are a part of the input";
        registry.register("model_tokens", help, tokens.clone());
        registry.register("model_cost_dollars", "Cost of model calls", cost.clone());
        let help = "Number of prompts that wait in the queues of sessions of this process";
        registry.register("queued_prompts", help, queued.clone());
        Self {
            registry,
            queue_wait,
            durations,
            failovers,
            tokens,
            cost,
            queued,
            values: Mutex::default(),
        }
    }
}

impl Metrics {
    /// Records one observation.
    pub fn observe(&self, metric: Metric, labels: Labels<'_>, duration: Duration) {
        let labels = self.label_set(labels);
        let seconds = duration.as_secs_f64();
        match self.durations.get(&metric) {
            Some(histograms) => histograms.get_or_create(&labels).observe(seconds),
            None if metric == Metric::QueueWait => self.queue_wait.observe(seconds),
            None => drop(self.failovers.get_or_create(&labels).inc()),
        }
    }

    /// Counts the tokens and the cost of a model call.
    pub fn add_usage(&self, model: &str, usage: &Usage) {
        for (kind, count) in [
            ("input", usage.input_tokens),
            ("cached", usage.cached_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("output", usage.output_tokens),
        ] {
            if count > 0 {
                let labels = self.label_set(&[("model", model), ("kind", kind)]);
                self.tokens.get_or_create(&labels).inc_by(count);
            }
        }
        if usage.micro_dollars > 0 {
            let dollars = Duration::from_micros(usage.micro_dollars).as_secs_f64();
            let labels = self.label_set(&[("model", model)]);
            self.cost.get_or_create(&labels).inc_by(dollars);
        }
    }

    /// Changes the number of waiting prompts.
    pub(crate) fn add_queued(&self, change: i64) {
        self.queued.inc_by(change);
    }

    /// Labels with a bounded number of values.
    fn label_set(&self, labels: Labels<'_>) -> LabelSet {
        let mut known = self.values.lock();
        let labels = labels.iter().map(|(name, value)| {
            let values = known.entry(name).or_default();
            let is_known = values.contains(*value);
            let is_new = values.len() < MAX_VALUES && value.len() <= MAX_VALUE_LEN;
            if !is_known && is_new {
                values.insert((*value).to_owned());
            }
            let value = if is_known || is_new { value } else { OTHER };
            (*name, value.to_owned())
        });
        labels.collect()
    }

    /// All metrics in the Prometheus text format.
    pub fn prometheus(&self) -> String {
        self.prometheus_with(&Registry::default())
    }

    /// All metrics and those of another registry in the Prometheus text format.
    pub fn prometheus_with(&self, other: &Registry) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode_registry(&mut text, &self.registry);
        let _ = encode_registry(&mut text, other);
        let _ = encode_eof(&mut text);
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

    #[test]
    fn usage_is_counted_by_model() {
        let metrics = Metrics::default();
        let usage = Usage {
            turns: 1,
            input_tokens: 100,
            output_tokens: 20,
            micro_dollars: 1_500_000,
            ..Usage::default()
        };
        metrics.add_usage("a/b", &usage);
        metrics.add_usage("a/b", &usage);
        let text = metrics.prometheus();
        for line in [
            r#"rye_model_tokens_total{model="a/b",kind="input"} 200"#,
            r#"rye_model_tokens_total{model="a/b",kind="output"} 40"#,
            r#"rye_model_cost_dollars_total{model="a/b"} 3.0"#,
            "rye_queued_prompts 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(!text.contains("cached\""), "{text}");
    }

    #[test]
    fn number_of_label_values_is_bounded() {
        let metrics = Metrics::default();
        for number in 0..2 * MAX_VALUES {
            let tool = format!("tool-{number}");
            metrics.observe(Metric::ToolExec, &[("tool", &tool)], Duration::ZERO);
        }
        metrics.observe(
            Metric::ToolExec,
            &[("tool", &"x".repeat(1000))],
            Duration::ZERO,
        );
        let text = metrics.prometheus();
        let series = text.lines().filter(|it| it.contains("_count{")).count();
        assert_eq!(series, MAX_VALUES + 1);
        let line = format!(
            "rye_tool_exec_seconds_count{{tool=\"other\"}} {}",
            MAX_VALUES + 1
        );
        assert!(text.lines().any(|it| it == line), "{text}");
    }
}
