//! The primitive `rye/core/primitives/state_graph`, which runs signed graphs.

pub(crate) mod resume;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::future::OptionFuture;
use lillux::Hash;
use lillux::keys::SigningKey;
use rye_engine::store::{SessionStore, StoreError};
use rye_executor::primitive::{Call, CallFailure, CallFuture, CallOutcome, Primitive};
use rye_executor::{Approval, Executor, RunContext};
use rye_items::{Item, ItemKind, ItemRef, Verified};
use rye_protocol::RunStatus;
use serde_json::{Map, Value, json};

use crate::cache::ResultCache;
use crate::definition::{Graph, literal_item};
use crate::dispatch::ExecutorDispatcher;
use crate::error::RecordError;
use crate::journal::{EventListener, Journal};
use crate::problem::Problem;
use crate::standalone::trust_policy;
use crate::trust::TrustPolicy;
use crate::validate;
use crate::walk::{Limits, RunResult, Walker};

use resume::RunSetup;
pub use resume::{ResumeError, RunOptions};

/// Limit on the nesting depth of graphs.
const MAX_DEPTH: u32 = 16;

/// Opens the session store when the first graph runs.
pub type OpenStore = Arc<dyn Fn() -> Result<Arc<dyn SessionStore>, StoreError> + Send + Sync>;

/// Runs graphs and records their runs in a session store.
#[derive(Clone)]
pub struct StateGraph {
    project: PathBuf,
    open_store: OpenStore,
    store: Arc<OnceLock<Arc<dyn SessionStore>>>,
    cache: PathBuf,
    key: Option<Arc<SigningKey>>,
    listener: Option<EventListener>,
    options: RunOptions,
    trust: Option<Arc<dyn TrustPolicy>>,
}

impl std::fmt::Debug for StateGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut this = f.debug_struct("StateGraph");
        this.field("project", &self.project).finish_non_exhaustive()
    }
}

impl StateGraph {
    /// Id of the primitive.
    pub const ID: &str = "rye/core/primitives/state_graph";

    /// Creates the primitive for a project. Results of nodes are cached below `cache`; `key` signs
    /// records and cached results.
    pub fn new(
        project: impl Into<PathBuf>,
        open_store: OpenStore,
        cache: &Path,
        key: Option<Arc<SigningKey>>,
    ) -> Self {
        let project = project.into();
        let name = Hash::digest(project.as_os_str().as_encoded_bytes()).to_hex();
        Self {
            cache: cache.join("graphs").join(&name[..16]),
            project,
            open_store,
            store: Arc::default(),
            key,
            listener: None,
            options: RunOptions::default(),
            trust: None,
        }
    }

    /// Sets a listener for lines of the history.
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

    fn store(&self) -> Result<Arc<dyn SessionStore>, RecordError> {
        if let Some(store) = self.store.get() {
            return Ok(Arc::clone(store));
        }
        let store = (self.open_store)()?;
        Ok(Arc::clone(self.store.get_or_init(|| store)))
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
            graph: &call.tool.reference,
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
        let run_id = match (&options.resume, &call.run) {
            (Some(run), _) => run.clone(),
            (None, Some(RunContext { id, .. })) => id.clone(),
            (None, None) => lillux::time::sortable_stamp(),
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
        // Of nested graphs, only the gates: the user must answer them.
        let listener = self.listener.clone();
        walker.listener = listener.map(|it| if depth == 0 { it } else { it.for_gates() });
        walker.trust = trust_policy(self.trust.clone(), self.key.as_deref());
        let setup = RunSetup {
            store: self.store().map_err(|error| failure(&error))?,
            project: &self.project,
            run_id: &run_id,
            options,
            key: self.key.clone(),
        };
        let from = match resume::start_or_resume(&mut walker, &setup, metadata).await? {
            resume::Entry::Continue(from) => from,
            resume::Entry::Finished(result) => return Ok(outcome(&run_id, *result, metadata)),
        };
        walker.cache = Some(ResultCache::new(self.cache.clone(), self.key.clone()));
        let aborted = walker.journal.as_ref().map(Journal::abort_requested);
        let result = tokio::select! {
            result = walker.run(from) => result,
            // Dropping the walker records the end.
            Some(()) = OptionFuture::from(aborted) => {
                let message = "the run was cancelled";
                let failure = CallFailure::new("cancelled", message);
                return Err(failure.with_hint(format!("rye graph run --resume {run_id}")));
            }
        };
        let result = result.map_err(|error| {
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
            CallFailure::new("no_executor", message).into()
        })
    }

    fn run_with_executor<'a>(&'a self, call: Call, executor: &'a Executor) -> CallFuture<'a> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let result = Box::pin(self.run_graph(&call, executor, &mut metadata)).await;
            CallOutcome::new(result, metadata)
        })
    }

    fn check(&self, call: Call) -> Result<(), CallFailure> {
        parse(&call).map(drop)
    }

    fn needs_tool(&self) -> bool {
        true
    }

    fn called_tools(&self, graph: &Verified<Item>) -> Vec<ItemRef> {
        let parsed = Graph::parse(graph.bytes());
        let graph = parsed.ok().and_then(|parsed| parsed.graph);
        let actions = graph.iter().flat_map(validate::actions);
        let ids = actions.filter_map(|action| literal_item(action)?.parse().ok());
        ids.map(|id| ItemRef::new(ItemKind::Tool, id)).collect()
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

pub(crate) fn failure(error: &RecordError) -> CallFailure {
    CallFailure {
        hint: error.hint(),
        ..CallFailure::new(error.code(), error.to_string())
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
