//! The primitive `rye/core/primitives/state_graph`, which runs signed graphs.

mod resume;
mod standalone;

use std::path::PathBuf;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_executor::primitive::{Call, CallFailure, CallFuture, CallOutcome, Primitive};
use rye_executor::{Approval, Executor, RunContext};
use rye_items::UserKeys;
use serde_json::{Map, Value, json};

use crate::cache::ResultCache;
use crate::definition::Graph;
use crate::dispatch::ExecutorDispatcher;
use crate::event::{RunStart, RunStatus};
use crate::gates::PendingIndex;
use crate::problem::Problem;
use crate::record::{RecordError, RunStore, TrustPolicy};
use crate::walk::{EventListener, Limits, RunResult, Walker};

pub use resume::{ResumeError, RunOptions};
use standalone::trust_policy;
pub use standalone::{JournalOptions, run_in_memory, run_journaled};

/// Limit on the nesting depth of graphs.
const MAX_DEPTH: u32 = 16;

/// Runs graphs and journals their runs below the project's `.ai/state/graphs/`.
#[derive(Debug, Clone)]
pub struct StateGraph {
    project: PathBuf,
    user: Option<PathBuf>,
    listener: Option<EventListener>,
    options: RunOptions,
    trust: Option<Arc<dyn TrustPolicy>>,
    pending_index: Option<PathBuf>,
}

impl StateGraph {
    /// Id of the primitive.
    pub const ID: &str = "rye/core/primitives/state_graph";

    /// Creates the primitive for a project. The signing key in the directory `user` signs journals.
    pub fn new(project: impl Into<PathBuf>, user: Option<PathBuf>) -> Self {
        Self {
            project: project.into(),
            user,
            listener: None,
            options: RunOptions::default(),
            trust: None,
            pending_index: None,
        }
    }

    /// Sets a listener for journal lines.
    #[must_use]
    pub fn with_listener(mut self, listener: EventListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Sets options such as resuming a run.
    #[must_use]
    pub fn with_options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the trust policy. By default only the user's own key is trusted, and all decisions
    /// are accepted.
    #[must_use]
    pub fn with_trust(mut self, trust: Arc<dyn TrustPolicy>) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Sets the directory of the index of projects with gates, so that the gates can be resolved
    /// from other directories.
    #[must_use]
    pub fn with_pending_index(mut self, dir: PathBuf) -> Self {
        self.pending_index = Some(dir);
        self
    }

    fn key(&self) -> Option<SigningKey> {
        UserKeys::new(self.user.as_deref()?).load_signing_key().ok()
    }

    async fn run_graph(
        &self,
        call: &Call,
        executor: &Executor,
        metadata: &mut Map<String, Value>,
    ) -> Result<CallOutcome, CallFailure> {
        let depth = call.run.as_ref().map_or(0, |run| run.depth);
        if depth > MAX_DEPTH {
            let message = format!("graphs are nested more than {MAX_DEPTH} levels deep");
            return Err(CallFailure::new("too_deep", message));
        }
        let graph = parse(call)?;
        let dispatch = ExecutorDispatcher {
            executor,
            approval: match call.approval {
                Approval::ByUser => Approval::ByUser,
                // The user approved the graph, not the tools that it calls.
                Approval::None | Approval::ForChain(_) | Approval::ForCall { .. } => Approval::None,
            },
            listener: call.listener.clone(),
        };
        let default_options = RunOptions::default();
        let options = if depth == 0 {
            &self.options
        } else {
            &default_options
        };
        let runs = RunStore::new(&self.project);
        let run_id = match (&options.resume, &call.run) {
            (Some(run), _) => run.clone(),
            (None, Some(RunContext { id, .. })) => id.clone(),
            (None, None) => runs.new_id().map_err(|error| failure(&error))?,
        };
        metadata.insert("run_id".into(), json!(run_id));
        let mut walker = Walker::new(
            &graph,
            call.tool.reference.id.as_str(),
            &dispatch,
            call.parameters.clone(),
            Limits {
                steps: options.steps,
                timeout: call.timeout,
            },
        );
        walker.depth = depth;
        walker.listener = self.listener.clone().filter(|_| depth == 0);
        let key = self.key();
        walker.trust = trust_policy(self.trust.clone(), key.as_ref());
        walker.pending_index = self
            .pending_index
            .clone()
            .map(|dir| PendingIndex::new(dir, &self.project));
        let from =
            match resume::start_or_resume(&mut walker, &runs, &run_id, options, key, metadata)? {
                resume::Entry::Continue(from) => from,
                resume::Entry::Finished(result) => return Ok(outcome(&run_id, *result, metadata)),
            };
        walker.cache = Some(ResultCache::new(runs.cache(), runs.store(), self.key()));
        let result = walker.run(from).await.map_err(|error| {
            let failure = failure(&error);
            if error.is_io() {
                failure.with_hint(format!("rye graph run --resume {run_id}"))
            } else {
                failure
            }
        })?;
        Ok(outcome(&run_id, result, metadata))
    }
}

impl Primitive for StateGraph {
    fn run(&self, _: Call) -> CallFuture<'_> {
        Box::pin(async {
            let message = "graphs need an executor to call their tools";
            CallOutcome {
                failure: Some(CallFailure::new("no_executor", message)),
                ..CallOutcome::default()
            }
        })
    }

    fn run_with_executor<'a>(&'a self, call: Call, executor: &'a Executor) -> CallFuture<'a> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let mut outcome = match self.run_graph(&call, executor, &mut metadata).await {
                Ok(outcome) => outcome,
                Err(failure) => CallOutcome {
                    failure: Some(failure),
                    ..CallOutcome::default()
                },
            };
            outcome.metadata.extend(metadata);
            outcome
        })
    }

    fn runs_programs(&self) -> bool {
        // Only the tools of the graph do.
        false
    }
}

/// Parses the verified graph. The failure contains all problems.
fn parse(call: &Call) -> Result<Graph, CallFailure> {
    let path = call.tool.path.display();
    let text = call.tool.bytes();
    let invalid = |message: String| {
        let hint = format!("rye graph validate {}", call.tool.reference.id);
        CallFailure::new("invalid_graph", message).with_hint(hint)
    };
    let parsed = Graph::parse(text)
        .map_err(|error| invalid(format!("{path}:{}: {error}", error.excerpt.position)))?;
    let format_problem = |problem: &Problem| {
        let position = problem.excerpt(text).position;
        format!("{path}:{position}: {}", problem.message)
    };
    let errors: Vec<_> = parsed.errors().map(format_problem).collect();
    let mut graph = parsed.graph.ok_or_else(|| invalid(errors.join("; ")))?;
    // The hash of the content without its signature, so that signing again changes nothing.
    graph.hash = call.tool.hash;
    Ok(graph)
}

fn failure(error: &RecordError) -> CallFailure {
    let failure = CallFailure::new(error.code(), error.to_string());
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

fn outcome(run: &str, result: RunResult, metadata: &mut Map<String, Value>) -> CallOutcome {
    metadata.insert("run_status".into(), json!(result.status));
    metadata.insert("steps".into(), json!(result.steps));
    if let Some(node) = &result.node {
        metadata.insert("node".into(), json!(node));
    }
    if !result.warnings.is_empty() {
        metadata.insert("graph_warnings".into(), json!(result.warnings));
    }
    let failure = result.error.map(|error| {
        let code = match result.status {
            RunStatus::Limit => "max_steps",
            RunStatus::TimedOut => "timeout",
            _ if error.code == "not_permitted" => "not_permitted",
            _ => "graph_failed",
        };
        let message = match (&result.node, result.status) {
            (Some(node), RunStatus::Failed) => format!("node `{node}` failed: {error}"),
            _ => error.message,
        };
        let resume = || format!("rye graph run --resume {run}");
        CallFailure::new(code, message).with_hint(error.hint.unwrap_or_else(resume))
    });
    CallOutcome {
        data: result.output,
        failure,
        ..CallOutcome::default()
    }
}

/// The first event of a run.
fn run_start(
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
        boot: boot_id(),
    }
}

/// Boot id of the machine.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}
