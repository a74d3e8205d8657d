//! What a thread does, timed as it is told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_protocol::{
    CallId, EventKind, Gate, GateStatus, Millis, Op, PromptId, PromptStatus, ResultStatus,
    SessionId, Thread, ThreadId, TurnEnd,
};
use tracing::{Span, field, info_span};

use crate::metrics::{Metric, Metrics};

/// Times what a thread does.
pub(super) struct Meter {
    metrics: Arc<Metrics>,
    session: SessionId,
    thread: ThreadId,
    turn: Option<Timed>,
    model: Option<Timed>,
    compaction: Option<Timed>,
    tools: HashMap<CallId, Timed>,
}

/// Something that has begun.
struct Timed {
    start: Instant,
    what: String,
    /// Ends when it is dropped.
    span: Span,
}

/// A span with the ids that it belongs to. Its name must be known when this is compiled.
macro_rules! span {
    ($meter:expr, $name:literal, $($field:tt)*) => {
        info_span!(
            $name,
            session = $meter.session.as_str(),
            thread = $meter.thread.as_str(),
            outcome = field::Empty,
            $($field)*
        )
    };
}

impl Timed {
    fn begin(what: impl Into<String>, span: Span) -> Self {
        let (start, what) = (Instant::now(), what.into());
        Self { start, what, span }
    }

    fn end(&self, outcome: &str) -> Duration {
        self.span.record("outcome", outcome);
        self.start.elapsed()
    }
}

impl Meter {
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

    /// A model is called.
    pub(super) fn model_called(&mut self, model: &str) {
        let span = span!(self, "llm_call", model);
        self.model = Some(Timed::begin(model, span));
    }

    /// It has answered, or not.
    pub(super) fn model_ended(&mut self, outcome: &str) {
        if let Some(call) = self.model.take() {
            let took = call.end(outcome);
            let labels = [("model", call.what.as_str()), ("outcome", outcome)];
            self.metrics.observe(Metric::LlmCall, &labels, took);
        }
    }

    /// A gate has ended that was waited for.
    pub(super) fn decided(&self, gate: &Gate, now: Millis) {
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

    /// What was written, as far as no event tells of it.
    pub(super) fn written(&mut self, op: &Op, now: Millis) {
        match op {
            Op::PutPrompt(prompt) if prompt.status == PromptStatus::Running => {
                self.begun(&prompt.id, prompt.created_at, now);
            }
            Op::PutGate(gate) => self.decided(gate, now),
            _ => {}
        }
    }

    fn begun(&mut self, prompt: &PromptId, since: Millis, now: Millis) {
        let waited = since.until(now);
        let (id, waited_ms) = (prompt.as_str(), millis(waited));
        drop(span!(self, "queue_wait", prompt = id, waited_ms));
        self.metrics.observe(Metric::QueueWait, &[], waited);
        let span = span!(self, "turn_complete", prompt = id);
        self.turn = Some(Timed::begin("", span));
    }

    /// What is told.
    pub(super) fn told(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ToolStart { call, tool } => {
                let span = span!(
                    self,
                    "tool_exec",
                    tool = tool.as_str(),
                    call = call.as_str()
                );
                let begun = Timed::begin(tool.as_str(), span);
                // One that is run again after its gate is still the same call.
                self.tools.entry(call.clone()).or_insert(begun);
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
                self.compaction = Some(Timed::begin("", span));
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
        // One that a dead host had begun was not timed.
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
        let labels = [("tool", tool.what.as_str()), ("outcome", outcome)];
        self.metrics.observe(Metric::ToolExec, &labels, took);
    }

    fn turn_ended(&mut self, reason: TurnEnd) {
        // Of a call that was cut off nothing more is heard.
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
