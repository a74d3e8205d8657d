//! Walks of programs that call tools in their own way.

use std::path::Path;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_executor::RunContext;
use rye_executor::primitive::CallFailure;
use serde_json::{Map, Value};

use super::{RunOptions, failed, resume};
use crate::dispatch::Dispatcher;
use crate::event::RunStatus;
use crate::model::Graph;
use crate::record::{At, RunStore, SingleKey, TrustPolicy};
use crate::walk::{EventListener, Limits, RunResult, Walk};

/// Walks a graph in memory: nothing is written down, and no person can be asked.
pub async fn run_in_memory(
    graph: &Graph,
    dispatch: &dyn Dispatcher,
    inputs: Value,
    limits: Limits,
) -> RunResult {
    let start = graph.nodes[graph.start].name.clone();
    let walk = Walk::new(graph, "", dispatch, inputs, limits);
    match walk.walk(At::Before(start)).await {
        Ok(ended) => ended,
        // Only what is written down can fail to be.
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

/// How a walk is written down.
#[derive(Debug, Default)]
pub struct JournalOptions {
    /// What the run is called; one that is there goes on where it was.
    pub run: Option<RunContext>,
    /// Who signs it.
    pub key: Option<SigningKey>,
    /// Who is told what happens.
    pub watcher: Option<EventListener>,
    /// Who says whose records and decisions count. Without, it is those of the key that signs,
    /// and every decision.
    pub trust: Option<Arc<dyn TrustPolicy>>,
}

pub(super) fn trusted(
    trust: Option<Arc<dyn TrustPolicy>>,
    key: Option<&SigningKey>,
) -> Arc<dyn TrustPolicy> {
    trust.unwrap_or_else(|| Arc::new(SingleKey(key.map(|key| key.public().clone()))))
}

/// Walks a graph and writes it down as a run of a project, for programs that call tools in
/// their own way.
pub async fn run_journaled(
    graph: &Graph,
    dispatch: &dyn Dispatcher,
    inputs: Value,
    project: &Path,
    writing: JournalOptions,
) -> Result<RunResult, CallFailure> {
    let runs = RunStore::new(project);
    let (name, depth) = match writing.run {
        Some(RunContext { id, depth }) => (id, depth),
        None => (runs.new_id().map_err(|error| failed(&error))?, 0),
    };
    let mut walk = Walk::new(graph, "", dispatch, inputs, Limits::default());
    walk.depth = depth;
    walk.watcher = writing.watcher;
    walk.trust = trusted(writing.trust, writing.key.as_ref());
    let going = RunOptions::default();
    match resume::enter(
        &mut walk,
        &runs,
        &name,
        &going,
        writing.key,
        &mut Map::new(),
    )? {
        resume::Entered::At(from) => walk.walk(from).await.map_err(|error| failed(&error)),
        resume::Entered::Over(ended) => Ok(*ended),
    }
}
