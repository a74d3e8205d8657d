//! The walker: from node to node, each step written down before the next is acted on.

mod act;
mod decide;
mod end;
mod foreach;
mod hooks;
mod step;
mod writing;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_items::metadata::Effect;
use rye_protocol::Gate;
use serde_json::{Map, Value};

use crate::cache::Cache;
use crate::dispatch::Dispatcher;
use crate::event::{JournalLine, NodeError, NodeOutcome, RunStatus};
use crate::gates::PendingIndex;
use crate::model::{Graph, Kind, Moment, Node};
use crate::path::Scope;
use crate::record::{At, HookState, ItemState, Journal, RecordError, SingleKey, TrustPolicy};

/// What the walker itself puts into the state: what last went wrong.
pub(crate) const LAST_ERROR: &str = "_last_error";

/// Somebody who is told what happens, as it is written down.
#[derive(Clone)]
pub struct EventListener(Arc<dyn Fn(&JournalLine) + Send + Sync>);

impl EventListener {
    /// One who is told each line.
    pub fn new(tell: impl Fn(&JournalLine) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl std::fmt::Debug for EventListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventListener")
    }
}

/// How far a walk may go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// This many steps, and then it pauses.
    pub steps: Option<u64>,
    /// This long, not counting what people take to decide.
    pub timeout: Option<Duration>,
}

/// How a walk ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// How.
    pub status: RunStatus,
    /// What the graph gave.
    pub output: Value,
    /// Why it did not come to its end.
    pub error: Option<NodeError>,
    /// Where it would go on.
    pub node: Option<String>,
    /// The state at the end.
    pub state: Map<String, Value>,
    /// How many steps it has taken, those of earlier walks included.
    pub steps: u64,
    /// What a person may want to know.
    pub warnings: Vec<String>,
}

/// What a resumed run knows of what it was doing.
#[derive(Debug, Default)]
pub(crate) struct Before {
    pub(crate) items: BTreeMap<usize, ItemState>,
    pub(crate) hooks: BTreeMap<(usize, u64), HookState>,
    /// Whether lines that were not flushed may be lost: the machine went down.
    pub(crate) may_miss: bool,
    /// Whether it was ended between any two lines, not where a walk ends.
    pub(crate) is_cut_short: bool,
    /// What went wrong with the last step.
    pub(crate) error: Option<NodeError>,
    pub(crate) output: Option<Value>,
    /// What it has asked and not heard of.
    pub(crate) gates: Vec<Gate>,
}

/// A node of which nothing more was heard since it was begun.
#[derive(Debug, Clone, Copy)]
struct Begun {
    effect: Effect,
    /// How often it was begun.
    times: u32,
}

/// A walk through a graph.
pub(crate) struct Walk<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) id: String,
    pub(crate) dispatch: &'g dyn Dispatcher,
    pub(crate) journal: Option<Journal>,
    pub(crate) watcher: Option<EventListener>,
    pub(crate) cache: Option<Cache>,
    /// Whose decisions count.
    pub(crate) trust: Arc<dyn TrustPolicy>,
    /// Where it is noted that something is asked.
    pub(crate) asking: Option<PendingIndex>,
    pub(crate) depth: u32,
    pub(crate) state: Map<String, Value>,
    pub(crate) inputs: Value,
    pub(crate) steps: u64,
    /// Steps since the run last came to an end of its own, for `max_steps`: who is killed
    /// does not get more of them.
    pub(crate) taken: u64,
    pub(crate) limits: Limits,
    pub(crate) before: Before,
    sizes: HashMap<String, usize>,
    size: usize,
    warnings: Vec<String>,
    /// Whether the last step did something that must be on the disk before the next begins.
    must_sync: bool,
    deadline: Option<Instant>,
}

/// What came of a node.
struct Done {
    outcome: NodeOutcome,
    result: Result<Value, NodeError>,
    /// What it puts into the state, whatever its result is.
    set: Map<String, Value>,
    output: Option<Value>,
    effect: Effect,
}

impl Done {
    fn of(result: Result<Value, NodeError>, effect: Effect) -> Self {
        let outcome = match result {
            Ok(_) => NodeOutcome::Done,
            Err(_) => NodeOutcome::Failed,
        };
        Self {
            outcome,
            result,
            set: Map::new(),
            output: None,
            effect,
        }
    }
}

/// Whether something may be done twice.
fn is_repeatable(effect: Effect) -> bool {
    matches!(effect, Effect::Pure | Effect::Idempotent)
}

impl<'g> Walk<'g> {
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
            watcher: None,
            cache: None,
            trust: Arc::new(SingleKey(None)),
            asking: None,
            depth: 0,
            state: Map::new(),
            inputs,
            steps: 0,
            taken: 0,
            deadline: limits.timeout.map(|timeout| Instant::now() + timeout),
            limits,
            before: Before::default(),
            sizes: HashMap::new(),
            size: 0,
            warnings: Vec::new(),
            must_sync: false,
        }
    }

    /// Walks to the end, or as far as it goes.
    pub(crate) async fn walk(mut self, from: At) -> Result<RunResult, RecordError> {
        self.catch_up(&from).await?;
        let mut output = self.before.output.take();
        let mut taken = 0;
        let mut at = match from {
            At::Before(name) => self.graph.index(&name).map(|index| (index, None)),
            At::Within {
                node,
                effect,
                times,
            } => {
                let index = self.graph.index(&node);
                index.map(|index| (index, Some(Begun { effect, times })))
            }
            At::Failed { node, error } => {
                let node = self
                    .graph
                    .index(&node)
                    .map(|index| &self.graph.nodes[index]);
                return self.stop(RunStatus::Failed, Some(error), node);
            }
            At::Behind => None,
        };
        while let Some((index, begun)) = at {
            let node = &self.graph.nodes[index];
            if self.limits.steps.is_some_and(|most| taken >= most) {
                return self.stop(RunStatus::Paused, None, Some(node));
            }
            if self.taken >= self.graph.max_steps {
                self.hooks(Moment::Limit, None).await?;
                let steps = match self.graph.max_steps {
                    1 => "1 step".to_owned(),
                    most => format!("{most} steps"),
                };
                let message = format!("it has taken {steps}, as many as `max_steps` lets it");
                let error = NodeError::new("max_steps", message);
                return self.stop(RunStatus::Limit, Some(error), Some(node));
            }
            taken += 1;
            self.taken += 1;
            if begun.is_none() {
                self.steps += 1;
            }
            let start = Instant::now();
            let Some(done) = self.within_time(node, begun).await? else {
                let error = NodeError::new("timeout", "its time was up");
                return self.stop(RunStatus::TimedOut, Some(error), Some(node));
            };
            self.before.items.clear();
            let (next, step_output) = match self.finish(node, done, start).await? {
                Ok(next) => next,
                Err(error) => return self.stop(RunStatus::Failed, Some(error), Some(node)),
            };
            output = step_output;
            at = next.map(|next| (next, None));
        }
        self.complete(output).await
    }

    /// Does what a node does, unless its time is up before.
    async fn within_time(
        &mut self,
        node: &'g Node,
        begun: Option<Begun>,
    ) -> Result<Option<Done>, RecordError> {
        let Some(deadline) = self.deadline else {
            return self.node(node, begun).await.map(Some);
        };
        if let Kind::Decision(_) = node.kind {
            let start = Instant::now();
            let done = self.node(node, begun).await?;
            self.deadline = Some(deadline + start.elapsed());
            return Ok(Some(done));
        }
        match tokio::time::timeout_at(deadline.into(), self.node(node, begun)).await {
            Ok(done) => done.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn node(&mut self, node: &'g Node, begun: Option<Begun>) -> Result<Done, RecordError> {
        match &node.kind {
            Kind::Gate => {
                self.begin(node, Effect::Pure, begun)?;
                Ok(Done::of(Ok(Value::Null), Effect::Pure))
            }
            Kind::Return(output) => {
                self.begin(node, Effect::Pure, begun)?;
                let mut done = Done::of(Ok(Value::Null), Effect::Pure);
                done.output = Some(match output {
                    Some(output) => {
                        let scope = Scope::new(&self.state, &self.inputs);
                        let output = output.fill(&scope);
                        let missing = scope.missing.into_inner();
                        self.warn(node, missing);
                        output
                    }
                    None => self.visible_state(),
                });
                Ok(done)
            }
            Kind::Action(action) => self.action(node, action, begun).await,
            Kind::Foreach(foreach) => self.foreach(node, foreach, begun).await,
            Kind::Decision(decision) => self.decision(node, decision, begun).await,
        }
    }
}

/// A value as a person reads it.
pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
