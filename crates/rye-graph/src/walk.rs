//! Execution of a graph, node by node. Each step is recorded before the next one starts.

mod action;
mod decision;
mod finish;
mod foreach;
mod hooks;
mod transition;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_protocol::EffectClass;
use rye_protocol::{NodeError, NodeOutcome, RunEvent, RunStatus};
use serde_json::{Map, Value};

use crate::cache::ResultCache;
use crate::definition::{Graph, HookEvent, Node, NodeKind};
use crate::dispatch::Dispatcher;
use crate::error::RecordError;
use crate::history::{HookState, ItemState, Position};
use crate::journal::{EventListener, Journal};
use crate::path::Scope;
use crate::trust::{SingleKey, TrustPolicy};

/// State key of the last error, which the run sets itself.
pub(crate) const LAST_ERROR: &str = "_last_error";

/// Limits of one execution.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Number of steps after which the run pauses.
    pub steps: Option<u64>,
    /// Time limit, not counting the time that gates are open.
    pub timeout: Option<Duration>,
}

/// Result of an execution.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// Status of the run.
    pub status: RunStatus,
    /// Output of the graph.
    pub output: Value,
    /// The error, unless the run completed or paused.
    pub error: Option<NodeError>,
    /// The node to continue with.
    pub node: Option<String>,
    /// The final state.
    pub state: Map<String, Value>,
    /// Number of steps, including those of earlier executions.
    pub steps: u64,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Journaled progress that a resumed run continues from.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) items: BTreeMap<usize, ItemState>,
    pub(crate) hooks: BTreeMap<(usize, u64), HookState>,
    /// Whether the previous process was interrupted at an arbitrary point.
    pub(crate) was_interrupted: bool,
    /// Error of the last step.
    pub(crate) error: Option<NodeError>,
    pub(crate) output: Option<Value>,
}

/// A node that was started before a crash and did not end.
#[derive(Debug, Clone, Copy)]
struct InterruptedStart {
    effect: EffectClass,
    /// Number of times that the node was started.
    starts: u32,
}

/// An execution of a graph.
pub(crate) struct Walker<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) id: String,
    pub(crate) dispatch: &'g dyn Dispatcher,
    pub(crate) journal: Option<Journal>,
    pub(crate) listener: Option<EventListener>,
    pub(crate) cache: Option<ResultCache>,
    /// Decides which keys and receipts are trusted.
    pub(crate) trust: Arc<dyn TrustPolicy>,
    pub(crate) depth: u32,
    pub(crate) state: Map<String, Value>,
    pub(crate) inputs: Value,
    pub(crate) steps: u64,
    /// Steps since the run last stopped in an orderly way, for `max_steps`. A crash does not
    /// reset it.
    pub(crate) steps_since_stop: u64,
    pub(crate) limits: Limits,
    pub(crate) progress: Progress,
    sizes: HashMap<String, usize>,
    size: usize,
    warnings: Vec<String>,
    deadline: Option<Instant>,
}

/// Result of a node.
struct NodeResult {
    outcome: NodeOutcome,
    result: Result<Value, NodeError>,
    /// State values to set, even if the node failed.
    set: Map<String, Value>,
    output: Option<Value>,
}

impl NodeResult {
    fn new(result: Result<Value, NodeError>) -> Self {
        let outcome = match result {
            Ok(_) => NodeOutcome::Done,
            Err(_) => NodeOutcome::Failed,
        };
        Self {
            outcome,
            result,
            set: Map::new(),
            output: None,
        }
    }
}

/// Whether a call with this effect class may be repeated.
fn is_repeatable(effect: EffectClass) -> bool {
    matches!(effect, EffectClass::Pure | EffectClass::Idempotent)
}

impl<'g> Walker<'g> {
    pub(crate) fn new(
        graph: &'g Graph,
        id: impl Into<String>,
        dispatch: &'g dyn Dispatcher,
        inputs: Value,
        limits: Limits,
    ) -> Self {
        Self {
            graph,
            id: id.into(),
            dispatch,
            journal: None,
            listener: None,
            cache: None,
            trust: Arc::new(SingleKey(None)),
            depth: 0,
            state: Map::new(),
            inputs,
            steps: 0,
            steps_since_stop: 0,
            deadline: limits.timeout.map(|timeout| Instant::now() + timeout),
            limits,
            progress: Progress::default(),
            sizes: HashMap::new(),
            size: 0,
            warnings: Vec::new(),
        }
    }

    /// Runs the graph until it ends or stops.
    pub(crate) async fn run(mut self, from: Position) -> Result<RunResult, RecordError> {
        self.catch_up_hooks(&from).await?;
        let mut output = self.progress.output.take();
        let mut steps_taken = 0;
        let mut at = match from {
            Position::Before(name) => self.graph.index(&name).map(|index| (index, None)),
            Position::Within {
                node,
                effect,
                starts,
            } => {
                let index = self.graph.index(&node);
                index.map(|index| (index, Some(InterruptedStart { effect, starts })))
            }
            Position::Failed { node, error } => {
                let node = self
                    .graph
                    .index(&node)
                    .map(|index| &self.graph.nodes[index]);
                return Box::pin(self.stop(RunStatus::Failed, Some(error), node)).await;
            }
            Position::End => None,
        };
        while let Some((index, interrupted)) = at {
            let node = &self.graph.nodes[index];
            if self.limits.steps.is_some_and(|most| steps_taken >= most) {
                return Box::pin(self.stop(RunStatus::Paused, None, Some(node))).await;
            }
            if self.steps_since_stop >= self.graph.max_steps {
                self.run_hooks(HookEvent::Limit, None).await?;
                let steps = match self.graph.max_steps {
                    1 => "1 step".to_owned(),
                    most => format!("{most} steps"),
                };
                let message = format!("reached `max_steps` after {steps}");
                let error = NodeError::new("max_steps", message);
                return Box::pin(self.stop(RunStatus::Limit, Some(error), Some(node))).await;
            }
            steps_taken += 1;
            self.steps_since_stop += 1;
            if interrupted.is_none() {
                self.steps += 1;
            }
            let start = Instant::now();
            let Some(result) = self.run_node_in_time(node, interrupted).await? else {
                let error = NodeError::new("timeout", "the time limit was reached");
                return Box::pin(self.stop(RunStatus::TimedOut, Some(error), Some(node))).await;
            };
            self.progress.items.clear();
            let (next, step_output) = match self.finish_node(node, result, start).await? {
                Ok(next) => next,
                Err(error) => {
                    return Box::pin(self.stop(RunStatus::Failed, Some(error), Some(node))).await;
                }
            };
            output = step_output;
            at = next.map(|next| (next, None));
        }
        Box::pin(self.complete(output)).await
    }

    /// Runs a node; `None` if the time limit is reached first.
    async fn run_node_in_time(
        &mut self,
        node: &'g Node,
        interrupted: Option<InterruptedStart>,
    ) -> Result<Option<NodeResult>, RecordError> {
        let Some(deadline) = self.deadline else {
            return self.run_node(node, interrupted).await.map(Some);
        };
        if let NodeKind::Decision(_) = node.kind {
            let start = Instant::now();
            let done = self.run_node(node, interrupted).await?;
            self.deadline = Some(deadline + start.elapsed());
            return Ok(Some(done));
        }
        match tokio::time::timeout_at(deadline.into(), self.run_node(node, interrupted)).await {
            Ok(done) => done.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn run_node(
        &mut self,
        node: &'g Node,
        interrupted: Option<InterruptedStart>,
    ) -> Result<NodeResult, RecordError> {
        match &node.kind {
            NodeKind::Gate => {
                self.record_begin(node, EffectClass::Pure, &Value::Null, interrupted);
                Ok(NodeResult::new(Ok(Value::Null)))
            }
            NodeKind::Return(output) => {
                self.record_begin(node, EffectClass::Pure, &Value::Null, interrupted);
                let mut done = NodeResult::new(Ok(Value::Null));
                done.output = Some(match output {
                    Some(output) => {
                        let scope = Scope::new(&self.state, &self.inputs);
                        let output = output.render(&scope);
                        let missing = scope.missing.into_inner();
                        self.warn(node, missing);
                        output
                    }
                    None => self.visible_state(),
                });
                Ok(done)
            }
            NodeKind::Action(action) => self.action(node, action, interrupted).await,
            NodeKind::Foreach(foreach) => self.foreach(node, foreach, interrupted).await,
            NodeKind::Decision(decision) => self.decision(node, decision, interrupted).await,
        }
    }
}

impl Walker<'_> {
    /// Records the start of a node without a call. The next commit writes it.
    fn record_begin(
        &mut self,
        node: &Node,
        effect: EffectClass,
        input: &Value,
        interrupted: Option<InterruptedStart>,
    ) {
        if interrupted.is_none() && self.journal.is_some() {
            self.record(RunEvent::Begin {
                step: self.steps,
                node: node.name.clone(),
                effect,
                input: transition::recorded_input(input),
            });
        }
    }

    /// Records the start of a node that makes a call, together with the end of the previous one.
    async fn begin(
        &mut self,
        node: &Node,
        effect: EffectClass,
        input: &Value,
        interrupted: Option<InterruptedStart>,
    ) -> Result<(), RecordError> {
        self.record_begin(node, effect, input, interrupted);
        self.commit().await
    }

    fn warn(&mut self, node: &Node, messages: Vec<String>) {
        for message in messages {
            self.warnings.push(format!("{}: {message}", node.name));
            let node = node.name.clone();
            self.record(RunEvent::Warning { node, message });
        }
    }

    /// Adds an event to the journal, if there is one, and notifies the listener.
    pub(crate) fn record(&mut self, event: RunEvent) {
        if let Some(journal) = &mut self.journal {
            let line = journal.push(event);
            if let Some(listener) = &self.listener {
                listener.notify(&line);
            }
        }
    }

    async fn commit(&mut self) -> Result<(), RecordError> {
        match &mut self.journal {
            Some(journal) => journal.commit().await,
            None => Ok(()),
        }
    }
}

/// Formats a value for the user.
pub(crate) fn display_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
