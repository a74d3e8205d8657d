//! Runs of graphs with a custom dispatcher.

use std::path::Path;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_engine::store::SessionStore;
use rye_executor::RunContext;
use rye_executor::primitive::CallFailure;
use rye_protocol::{NodeError, RunStatus, SessionId};
use serde_json::{Map, Value};

use crate::definition::Graph;
use crate::dispatch::Dispatcher;
use crate::history::Position;
use crate::journal::EventListener;
use crate::primitive::resume::{self, RunSetup};
use crate::primitive::{RunOptions, failure};
use crate::trust::{SingleKey, TrustPolicy};
use crate::walk::{Limits, RunResult, Walker};

/// Runs a graph without a record. Decision nodes fail, because there is no durable gate.
pub async fn run_in_memory(
    graph: &Graph,
    dispatch: &dyn Dispatcher,
    inputs: Value,
    limits: Limits,
) -> RunResult {
    let start = graph.nodes[graph.start].name.clone();
    let walker = Walker::new(graph, "", dispatch, inputs, limits);
    match Box::pin(walker.run(Position::Before(start))).await {
        Ok(result) => result,
        // Unreachable: only a record can fail.
        Err(error) => RunResult {
            status: RunStatus::Failed,
            output: Value::Null,
            error: Some(NodeError::new(error.code(), error.to_string())),
            node: None,
            state: Map::new(),
            steps: 0,
            warnings: Vec::new(),
        },
    }
}

/// Options of [`run_recorded`].
#[derive(Debug, Default)]
pub struct RecordOptions {
    /// Identity of the run; an existing run is resumed.
    pub run: Option<RunContext>,
    /// Key that signs the record.
    pub key: Option<SigningKey>,
    /// Listener for lines of the history.
    pub listener: Option<EventListener>,
    /// Trust policy. By default only `key` is trusted, and all decisions are accepted.
    pub trust: Option<Arc<dyn TrustPolicy>>,
}

/// The given policy, or one that trusts a single key.
pub(crate) fn trust_policy(
    trust: Option<Arc<dyn TrustPolicy>>,
    key: Option<&SigningKey>,
) -> Arc<dyn TrustPolicy> {
    trust.unwrap_or_else(|| Arc::new(SingleKey(key.map(|key| key.public().clone()))))
}

/// Runs a graph and records it in a session store.
pub async fn run_recorded(
    graph: &Graph,
    dispatch: &dyn Dispatcher,
    inputs: Value,
    store: Arc<dyn SessionStore>,
    project: &Path,
    options: RecordOptions,
) -> Result<RunResult, CallFailure> {
    let (run_id, depth) = match options.run {
        Some(RunContext { id, depth }) => (id, depth),
        None => (SessionId::new().to_string(), 0),
    };
    let mut walker = Walker::new(graph, "", dispatch, inputs, Limits::default());
    walker.depth = depth;
    walker.listener = options.listener;
    walker.trust = trust_policy(options.trust, options.key.as_ref());
    let setup = RunSetup {
        store,
        project,
        run_id: &run_id,
        options: &RunOptions::default(),
        key: options.key.map(Arc::new),
    };
    let mut metadata = Map::new();
    let resumed = resume::start_or_resume(&mut walker, &setup, &mut metadata);
    match Box::pin(resumed).await? {
        resume::Entry::Continue(from) => Box::pin(walker.run(from))
            .await
            .map_err(|error| failure(&error)),
        resume::Entry::Finished(result) => Ok(*result),
    }
}
