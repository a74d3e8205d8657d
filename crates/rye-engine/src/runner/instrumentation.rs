//! Metrics and tracing spans of a thread's turns, model calls, tools and gates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_protocol::{
    CallId, EventKind, Gate, GateStatus, Millis, Op, PromptId, PromptStatus, ResultStatus,
    SessionId, Thread, ThreadId, TurnEnd,
};
use tracing::{Span, field, info_span};

use crate::metrics::{Metric, Metrics};

/// Measures the durations of a thread's work.
pub(super) struct TurnTimer {
    metrics: Arc<Metrics>,
    session: SessionId,
    thread: ThreadId,
    turn: Option<RunningSpan>,
    model: Option<RunningSpan>,
    compaction: Option<RunningSpan>,
    tools: HashMap<CallId, RunningSpan>,
}

/// A span that has started.
struct RunningSpan {
    start: Instant,
    label: String,
    /// Ends when it is dropped.
    span: Span,
}

/// A tracing span with the session and thread ids; its name must be a literal.
macro_rules! span {
    ($timer:expr, $name:literal, $($field:tt)*) => {
        info_span!(
            $name,
            session = $timer.session.as_str(),
            thread = $timer.thread.as_str(),
            outcome = field::Empty,
            $($field)*
        )
    };
}

impl RunningSpan {
    fn start(label: impl Into<String>, span: Span) -> Self {
        let (start, label) = (Instant::now(), label.into());
        Self { start, label, span }
    }

    fn end(&self, outcome: &str) -> Duration {
        self.span.record("outcome", outcome);
        self.start.elapsed()
    }
}

impl TurnTimer {
    pub(super) fn new(metrics: Arc<Metrics>, thread: &Thread) -> Self {
        Self {
            metrics,
            session: thread.session.clone(),
            thread: thread.id.clone(),
            turn: None,
            model: None,
            compaction: None,
            tools: HashMap::new(),
        }
    }

    /// A model call starts.
    pub(super) fn model_called(&mut self, model: &str) {
        let span = span!(self, "llm_call", model);
        self.model = Some(RunningSpan::start(model, span));
    }

    /// The model call has ended.
    pub(super) fn model_ended(&mut self, outcome: &str) {
        if let Some(call) = self.model.take() {
            let took = call.end(outcome);
            let labels = [("model", call.label.as_str()), ("outcome", outcome)];
            self.metrics.observe(Metric::LlmCall, &labels, took);
        }
    }

    /// A gate has closed.
    pub(super) fn gate_closed(&self, gate: &Gate, now: Millis) {
        let status = match gate.status {
            GateStatus::Pending => return,
            GateStatus::Resolved { .. } => "resolved",
            GateStatus::Withdrawn { .. } => "withdrawn",
            GateStatus::Expired { .. } => "expired",
        };
        let took = gate.created_at.until(now);
        let waited_ms = millis(took);
        span!(
            self,
            "decision_gate_wait",
            gate = gate.id.as_str(),
            waited_ms
        )
        .record("outcome", status);
        let labels = [("status", status)];
        self.metrics
            .observe(Metric::DecisionGateWait, &labels, took);
    }

    /// Records a committed operation that no event describes.
    pub(super) fn on_op(&mut self, op: &Op, now: Millis) {
        match op {
            Op::PutPrompt(prompt) if prompt.status == PromptStatus::Running => {
                self.turn_started(&prompt.id, prompt.created_at, now);
            }
            Op::PutGate(gate) => self.gate_closed(gate, now),
            _ => {}
        }
    }

    fn turn_started(&mut self, prompt: &PromptId, since: Millis, now: Millis) {
        let waited = since.until(now);
        let (id, waited_ms) = (prompt.as_str(), millis(waited));
        drop(span!(self, "queue_wait", prompt = id, waited_ms));
        self.metrics.observe(Metric::QueueWait, &[], waited);
        let span = span!(self, "turn_complete", prompt = id);
        self.turn = Some(RunningSpan::start("", span));
    }

    /// Records a published event.
    pub(super) fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ToolStart { call, tool } => {
                let span = span!(
                    self,
                    "tool_exec",
                    tool = tool.as_str(),
                    call = call.as_str()
                );
                let started = RunningSpan::start(tool.as_str(), span);
                // A call that is run again after its gate is the same call.
                self.tools.entry(call.clone()).or_insert(started);
            }
            EventKind::ToolEnd { call, status } => self.tool_ended(call, *status),
            EventKind::TurnEnd { reason, .. } => self.turn_ended(*reason),
            EventKind::ModelSwitched { from, to, .. } => {
                drop(span!(
                    self,
                    "model_failover",
                    from = from.as_str(),
                    to = to.as_str()
                ));
                let labels = [("from", from.as_str()), ("to", to.as_str())];
                self.metrics
                    .observe(Metric::ModelFailover, &labels, Duration::ZERO);
            }
            EventKind::CompactionStart => {
                let span = span!(self, "compaction",);
                self.compaction = Some(RunningSpan::start("", span));
            }
            EventKind::CompactionEnd { error, .. } => {
                if let Some(compaction) = self.compaction.take() {
                    let outcome = if error.is_none() { "success" } else { "error" };
                    let took = compaction.end(outcome);
                    let labels = [("outcome", outcome)];
                    self.metrics.observe(Metric::Compaction, &labels, took);
                }
            }
            _ => {}
        }
    }

    fn tool_ended(&mut self, call: &CallId, status: ResultStatus) {
        // A call that an earlier host started was not measured.
        let Some(tool) = self.tools.remove(call) else {
            return;
        };
        let outcome = match status {
            ResultStatus::Success => "success",
            ResultStatus::Error => "error",
            ResultStatus::Interrupted => "interrupted",
            ResultStatus::Aborted => "aborted",
        };
        let took = tool.end(outcome);
        let labels = [("tool", tool.label.as_str()), ("outcome", outcome)];
        self.metrics.observe(Metric::ToolExec, &labels, took);
    }

    fn turn_ended(&mut self, reason: TurnEnd) {
        // An aborted call reports no end.
        self.model_ended("aborted");
        self.tools.clear();
        let Some(turn) = self.turn.take() else {
            return;
        };
        let reason = match reason {
            TurnEnd::EndTurn => "end_turn",
            TurnEnd::Error => "error",
            TurnEnd::Abort => "abort",
            TurnEnd::Limit => "limit",
        };
        let took = turn.end(reason);
        let labels = [("reason", reason)];
        self.metrics.observe(Metric::TurnComplete, &labels, took);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
