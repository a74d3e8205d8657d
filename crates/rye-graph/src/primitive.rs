//! `rye/core/primitives/state_graph`: walks a graph whose chain was verified.

mod resume;
mod standalone;

use std::path::PathBuf;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_executor::primitive::{Call, CallFailure, CallFuture, CallOutcome, Primitive};
use rye_executor::{Approval, Executor, RunContext};
use rye_items::UserKeys;
use serde_json::{Map, Value, json};

use crate::cache::Cache;
use crate::dispatch::Items;
use crate::event::{RunStart, RunStatus};
use crate::gates::PendingIndex;
use crate::model::Graph;
use crate::problem::Problem;
use crate::record::{RecordError, RunStore, TrustPolicy};
use crate::walk::{EventListener, Limits, RunResult, Walk};

pub use resume::{ResumeError, RunOptions};
use standalone::trusted;
pub use standalone::{JournalOptions, run_in_memory, run_journaled};

/// Graphs within graphs, deeper than any that was made on purpose.
const DEEPEST: u32 = 16;

/// Walks graphs, and writes their runs down below the project's `.ai/state/graphs/`.
#[derive(Debug, Clone)]
pub struct StateGraph {
    project: PathBuf,
    user: Option<PathBuf>,
    watcher: Option<EventListener>,
    going: RunOptions,
    trust: Option<Arc<dyn TrustPolicy>>,
    asking: Option<PathBuf>,
}

impl StateGraph {
    /// The id under which it is registered.
    pub const ID: &str = "rye/core/primitives/state_graph";

    /// For the graphs of a project. The key of the user, whose folder this is, signs runs.
    pub fn new(project: impl Into<PathBuf>, user: Option<PathBuf>) -> Self {
        Self {
            project: project.into(),
            user,
            watcher: None,
            going: RunOptions::default(),
            trust: None,
            asking: None,
        }
    }

    /// With somebody who is told what happens.
    #[must_use]
    pub fn with_listener(mut self, watcher: EventListener) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// With another way to go than from the beginning to the end.
    #[must_use]
    pub fn with_options(mut self, going: RunOptions) -> Self {
        self.going = going;
        self
    }

    /// With somebody who says whose records and decisions count. Without, it is those of the
    /// user's own key, and every decision.
    #[must_use]
    pub fn with_trust(mut self, trust: Arc<dyn TrustPolicy>) -> Self {
        self.trust = Some(trust);
        self
    }

    /// With a folder where it is noted that runs of the project ask, so that their questions
    /// can be answered from anywhere.
    #[must_use]
    pub fn with_pending_index(mut self, folder: PathBuf) -> Self {
        self.asking = Some(folder);
        self
    }

    fn key(&self) -> Option<SigningKey> {
        UserKeys::new(self.user.as_deref()?).load_signing_key().ok()
    }

    async fn walked(
        &self,
        call: &Call,
        executor: &Executor,
        metadata: &mut Map<String, Value>,
    ) -> Result<CallOutcome, CallFailure> {
        let depth = call.run.as_ref().map_or(0, |run| run.depth);
        if depth > DEEPEST {
            let message = format!("more than {DEEPEST} graphs are within each other");
            return Err(CallFailure::new("too_deep", message));
        }
        let graph = read(call)?;
        let dispatch = Items {
            executor,
            approval: match call.approval {
                Approval::ByUser => Approval::ByUser,
                // What a person saw is the graph; of its tools they have seen nothing.
                Approval::None | Approval::ForChain(_) | Approval::ForCall { .. } => Approval::None,
            },
            listener: call.listener.clone(),
        };
        let own = RunOptions::default();
        let going = if depth == 0 { &self.going } else { &own };
        let runs = RunStore::new(&self.project);
        let name = match (&going.resume, &call.run) {
            (Some(run), _) => run.clone(),
            (None, Some(RunContext { id, .. })) => id.clone(),
            (None, None) => runs.new_id().map_err(|error| failed(&error))?,
        };
        metadata.insert("run_id".into(), json!(name));
        let mut walk = Walk::new(
            &graph,
            call.tool.reference.id.as_str(),
            &dispatch,
            call.parameters.clone(),
            Limits {
                steps: going.steps,
                timeout: call.timeout,
            },
        );
        walk.depth = depth;
        walk.watcher = self.watcher.clone().filter(|_| depth == 0);
        let key = self.key();
        walk.trust = trusted(self.trust.clone(), key.as_ref());
        walk.asking = self
            .asking
            .clone()
            .map(|it| PendingIndex::new(it, &self.project));
        let from = match resume::enter(&mut walk, &runs, &name, going, key, metadata)? {
            resume::Entered::At(from) => from,
            resume::Entered::Over(ended) => return Ok(done(&name, *ended, metadata)),
        };
        walk.cache = Some(Cache::new(runs.cache(), runs.store(), self.key()));
        let ended = walk.walk(from).await.map_err(|error| {
            let failed = failed(&error);
            if error.is_of_the_disk() {
                failed.with_hint(format!("when it can be: rye graph run --resume {name}"))
            } else {
                failed
            }
        })?;
        Ok(done(&name, ended, metadata))
    }
}

impl Primitive for StateGraph {
    fn run(&self, _: Call) -> CallFuture<'_> {
        Box::pin(async {
            let message = "a graph is walked by an executor, which calls its tools";
            CallOutcome {
                failure: Some(CallFailure::new("no_executor", message)),
                ..CallOutcome::default()
            }
        })
    }

    fn run_with_executor<'a>(&'a self, call: Call, executor: &'a Executor) -> CallFuture<'a> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let mut done = match self.walked(&call, executor, &mut metadata).await {
                Ok(done) => done,
                Err(failed) => CallOutcome {
                    failure: Some(failed),
                    ..CallOutcome::default()
                },
            };
            done.metadata.extend(metadata);
            done
        })
    }

    fn runs_programs(&self) -> bool {
        // Its tools do, and each has its own file.
        false
    }
}

/// The graph that was verified. All that is wrong is told at once.
fn read(call: &Call) -> Result<Graph, CallFailure> {
    let path = call.tool.path.display();
    let text = call.tool.bytes();
    let wrong = |why: String| {
        let hint = format!("rye graph validate {}", call.tool.reference.id);
        CallFailure::new("invalid_graph", why).with_hint(hint)
    };
    let reading = Graph::parse(text)
        .map_err(|error| wrong(format!("{path}:{}: {error}", error.excerpt.position)))?;
    let told = |problem: &Problem| {
        let place = problem.excerpt(text).position;
        format!("{path}:{place}: {}", problem.message)
    };
    let errors: Vec<_> = reading.errors().map(told).collect();
    let mut graph = reading.graph.ok_or_else(|| wrong(errors.join("; ")))?;
    // The one that is signed: a graph that is signed anew is the same graph.
    graph.hash = call.tool.hash;
    Ok(graph)
}

fn failed(error: &RecordError) -> CallFailure {
    let failed = CallFailure::new(error.code(), error.to_string());
    match error.hint() {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

fn done(run: &str, ended: RunResult, metadata: &mut Map<String, Value>) -> CallOutcome {
    metadata.insert("run_status".into(), json!(ended.status));
    metadata.insert("steps".into(), json!(ended.steps));
    if let Some(node) = &ended.node {
        metadata.insert("node".into(), json!(node));
    }
    if !ended.warnings.is_empty() {
        metadata.insert("graph_warnings".into(), json!(ended.warnings));
    }
    let failure = ended.error.map(|error| {
        let code = match ended.status {
            RunStatus::Limit => "max_steps",
            RunStatus::TimedOut => "timeout",
            _ if error.code == "not_permitted" => "not_permitted",
            _ => "graph_failed",
        };
        let message = match (&ended.node, ended.status) {
            (Some(node), RunStatus::Failed) => format!("the node `{node}` failed: {error}"),
            _ => error.message,
        };
        let resume = || format!("rye graph run --resume {run}");
        CallFailure::new(code, message).with_hint(error.hint.unwrap_or_else(resume))
    });
    CallOutcome {
        data: ended.output,
        failure,
        ..CallOutcome::default()
    }
}

fn started(
    graph: &Graph,
    run: &str,
    id: &str,
    inputs: Value,
    state: Map<String, Value>,
    start: String,
) -> RunStart {
    RunStart {
        run: run.to_owned(),
        graph: id.to_owned(),
        graph_hash: graph.hash.to_hex(),
        text: String::from_utf8_lossy(&graph.text).into_owned(),
        inputs,
        state,
        start,
        boot: boot(),
    }
}

/// Since when the machine runs.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}
