//! Walks of programs that call tools in their own way.

use std::path::Path;
use std::sync::Arc;

use lillux::keys::SigningKey;
use rye_executor::Run;
use rye_executor::primitive::Failed;
use serde_json::{Map, Value};

use super::{Going, failed, going};
use crate::dispatch::Dispatch;
use crate::event::Status;
use crate::model::Graph;
use crate::record::{At, Own, Runs, Trusting};
use crate::walk::{Ended, Limits, Walk, Watcher};

/// Walks a graph in memory: nothing is written down, and no person can be asked.
pub async fn walk(graph: &Graph, dispatch: &dyn Dispatch, inputs: Value, limits: Limits) -> Ended {
    let start = graph.nodes[graph.start].name.clone();
    let walk = Walk::new(graph, "", dispatch, inputs, limits);
    match walk.walk(At::Before(start)).await {
        Ok(ended) => ended,
        // Only what is written down can fail to be.
        Err(error) => Ended {
            status: Status::Failed,
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
pub struct Writing {
    /// What the run is called; one that is there goes on where it was.
    pub run: Option<Run>,
    /// Who signs it.
    pub key: Option<SigningKey>,
    /// Who is told what happens.
    pub watcher: Option<Watcher>,
    /// Who says whose records and decisions count. Without, it is those of the key that signs,
    /// and every decision.
    pub trust: Option<Arc<dyn Trusting>>,
}

pub(super) fn trusted(
    trust: Option<Arc<dyn Trusting>>,
    key: Option<&SigningKey>,
) -> Arc<dyn Trusting> {
    trust.unwrap_or_else(|| Arc::new(Own(key.map(|key| key.public().clone()))))
}

/// Walks a graph and writes it down as a run of a project, for programs that call tools in
/// their own way.
pub async fn walk_written(
    graph: &Graph,
    dispatch: &dyn Dispatch,
    inputs: Value,
    project: &Path,
    writing: Writing,
) -> Result<Ended, Failed> {
    let runs = Runs::of(project);
    let (name, depth) = match writing.run {
        Some(Run { id, depth }) => (id, depth),
        None => (runs.new_id().map_err(|error| failed(&error))?, 0),
    };
    let mut walk = Walk::new(graph, "", dispatch, inputs, Limits::default());
    walk.depth = depth;
    walk.watcher = writing.watcher;
    walk.trust = trusted(writing.trust, writing.key.as_ref());
    let going = Going::default();
    match going::enter(
        &mut walk,
        &runs,
        &name,
        &going,
        writing.key,
        &mut Map::new(),
    )? {
        going::Entered::At(from) => walk.walk(from).await.map_err(|error| failed(&error)),
        going::Entered::Over(ended) => Ok(*ended),
    }
}
