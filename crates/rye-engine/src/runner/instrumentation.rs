//! Metrics and tracing spans of a thread's turns, model calls, tools and gates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_protocol::{
    CallId, EntryKind, EventKind, Gate, Millis, Op, PromptId, PromptStatus, ResultStatus,
    SessionId, Thread, ThreadId, TurnEnd, Usage,
};
use tracing::{Id, Span, field, info_span};

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
    /// The model that answered last.
    answered_by: Option<String>,
    /// Usage in the batch whose operations and events are being recorded.
    added: Usage,
    /// Number of waiting prompts.
    queued: i64,
}

/// A span that has started.
struct RunningSpan {
    start: Instant,
    label: String,
    /// Ends when it is dropped.
    span: Span,
}

/// A tracing span with the session and thread ids below another span; its name must be a literal.
macro_rules! span {
    ($timer:expr, $parent:expr, $name:literal, $($field:tt)*) => {
        info_span!(
            parent: $parent,
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
            answered_by: None,
            added: Usage::default(),
            queued: 0,
        }
    }

    /// The number of waiting prompts is this one now.
    pub(super) fn set_queued(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.add_queued(count - self.queued);
        self.queued = count;
    }

    fn turn_id(&self) -> Option<Id> {
        self.turn.as_ref().and_then(|turn| turn.span.id())
    }

    /// The span of the model call in progress, for the task that makes it.
    pub(super) fn model_span(&self) -> Span {
        let model = self.model.as_ref().or(self.compaction.as_ref());
        model.map_or_else(Span::none, |model| model.span.clone())
    }

    /// The span of a tool call, for the task that runs it.
    pub(super) fn tool_span(&self, call: &CallId) -> Span {
        let tool = self.tools.get(call);
        tool.map_or_else(Span::none, |tool| tool.span.clone())
    }

    /// A model call starts.
    pub(super) fn model_called(&mut self, model: &str) {
        let span = span!(self, self.turn_id(), "llm_call", model);
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
        if gate.status.is_pending() {
            return;
        }
        let status: &str = (&gate.status).into();
        let took = gate.created_at.until(now);
        let waited_ms = millis(took);
        let tool = self.tools.get(&gate.origin.call);
        let parent = tool.map_or_else(|| self.turn_id(), |tool| tool.span.id());
        span!(
            self,
            parent,
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
            Op::AppendEntry(entry) => {
                if let EntryKind::Message(message) = &entry.kind
                    && let Some(model) = &message.model
                {
                    self.answered_by = Some(model.clone());
                }
            }
            Op::AddUsage(usage) => self.added = self.added.plus(*usage),
            _ => {}
        }
    }

    /// All operations and events of a batch are recorded.
    pub(super) fn end_batch(&mut self) {
        self.added = Usage::default();
    }

    /// Counts the tokens and the cost of a model call.
    fn count_usage(&self, usage: &Usage) {
        let model = self.answered_by.as_deref();
        self.metrics.add_usage(model.unwrap_or("unknown"), usage);
    }

    fn turn_started(&mut self, prompt: &PromptId, since: Millis, now: Millis) {
        let waited = since.until(now);
        let (id, waited_ms) = (prompt.as_str(), millis(waited));
        drop(span!(self, None, "queue_wait", prompt = id, waited_ms));
        self.metrics.observe(Metric::QueueWait, &[], waited);
        let span = span!(self, None, "turn_complete", prompt = id);
        self.turn = Some(RunningSpan::start("", span));
    }

    /// Records a published event.
    pub(super) fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ToolStart { call, tool } => {
                let span = span!(
                    self,
                    self.turn_id(),
                    "tool_exec",
                    tool = tool.as_str(),
                    call = call.as_str()
                );
                let started = RunningSpan::start(tool.as_str(), span);
                // A call that is run again after its gate is the same call.
                self.tools.entry(call.clone()).or_insert(started);
            }
            EventKind::ToolEnd { call, status } => self.tool_ended(call, *status),
            EventKind::TurnEnd { reason, .. } if reason.ends_turn() => self.turn_ended(*reason),
            EventKind::ModelSwitched { from, to, .. } => {
                drop(span!(
                    self,
                    self.turn_id(),
                    "model_failover",
                    from = from.as_str(),
                    to = to.as_str()
                ));
                let labels = [("from", from.as_str()), ("to", to.as_str())];
                self.metrics
                    .observe(Metric::ModelFailover, &labels, Duration::ZERO);
            }
            EventKind::CompactionStart => {
                let span = span!(self, self.turn_id(), "compaction",);
                self.compaction = Some(RunningSpan::start("", span));
            }
            EventKind::Usage { usage } => self.count_usage(usage),
            EventKind::CompactionEnd { error, .. } => {
                // The event of the model call that a compaction makes.
                self.count_usage(&self.added);
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
        let outcome = status.into();
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
        let reason = reason.into();
        let took = turn.end(reason);
        let labels = [("reason", reason)];
        self.metrics.observe(Metric::TurnComplete, &labels, took);
    }
}

impl Drop for TurnTimer {
    fn drop(&mut self) {
        self.set_queued(0);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
