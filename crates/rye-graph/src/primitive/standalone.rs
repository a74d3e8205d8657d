//! Runs of graphs with a custom dispatcher.

use std::path::Path;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_executor::RunContext;
use rye_executor::primitive::CallFailure;
use serde_json::{Map, Value};

use super::{RunOptions, failure, resume};
use crate::definition::Graph;
use crate::dispatch::Dispatcher;
use crate::event::RunStatus;
use crate::record::{Position, RunStore, SingleKey, TrustPolicy};
use crate::walk::{EventListener, Limits, RunResult, Walker};

/// Runs a graph without a journal. Decision nodes fail, because there is no durable gate.
pub async fn run_in_memory(
    graph: &Graph,
    dispatch: &dyn Dispatcher,
    inputs: Value,
    limits: Limits,
) -> RunResult {
    let start = graph.nodes[graph.start].name.clone();
    let walker = Walker::new(graph, "", dispatch, inputs, limits);
    match walker.run(Position::Before(start)).await {
        Ok(result) => result,
        // Unreachable: only a journal can fail.
        Err(error) => RunResult {
            status: RunStatus::Failed,
            output: Value::Null,
            error: Some(crate::event::NodeError::new(
                error.code(),
                error.to_string(),
            )),
            node: None,
            state: Map::new(),
            steps: 0,
            warnings: Vec::new(),
        },
    }
}

/// Options of [`run_journaled`].
#[derive(Debug, Default)]
pub struct JournalOptions {
    /// Identity of the run; an existing run is resumed.
    pub run: Option<RunContext>,
    /// Key that signs the journal.
    pub key: Option<SigningKey>,
    /// Listener for journal lines.
    pub listener: Option<EventListener>,
    /// Trust policy. By default only `key` is trusted, and all decisions are accepted.
    pub trust: Option<Arc<dyn TrustPolicy>>,
}

/// The given policy, or one that trusts a single key.
pub(super) fn trust_policy(
    trust: Option<Arc<dyn TrustPolicy>>,
    key: Option<&SigningKey>,
) -> Arc<dyn TrustPolicy> {
    trust.unwrap_or_else(|| Arc::new(SingleKey(key.map(|key| key.public().clone()))))
}

/// Runs a graph with a journal in a project.
pub async fn run_journaled(
    graph: &Graph,
    dispatch: &dyn Dispatcher,
    inputs: Value,
    project: &Path,
    options: JournalOptions,
) -> Result<RunResult, CallFailure> {
    let runs = RunStore::new(project);
    let (run_id, depth) = match options.run {
        Some(RunContext { id, depth }) => (id, depth),
        None => (runs.new_id().map_err(|error| failure(&error))?, 0),
    };
    let mut walker = Walker::new(graph, "", dispatch, inputs, Limits::default());
    walker.depth = depth;
    walker.listener = options.listener;
    walker.trust = trust_policy(options.trust, options.key.as_ref());
    let run_options = RunOptions::default();
    match resume::start_or_resume(
        &mut walker,
        &runs,
        &run_id,
        &run_options,
        options.key,
        &mut Map::new(),
    )? {
        resume::Entry::Continue(from) => walker.run(from).await.map_err(|error| failure(&error)),
        resume::Entry::Finished(result) => Ok(*result),
    }
}
