//! Finds a run among background runs and graph runs.

use super::record::{Run, Runs, State};
use super::{graph, verify};
use crate::cli::context::Context;
use crate::cli::failure::Failure;

/// A run, by its more detailed record.
pub(super) enum FoundRun {
    /// The graph's own record, and the background record if there is one.
    Graph(Box<rye_graph::RunRecord>, Option<Box<Run>>),
    Background(Box<Run>),
}

impl FoundRun {
    pub(super) fn find(runs: &Runs, id: &str, context: &Context) -> Result<Self, Failure> {
        let background = runs.find(id);
        let graph_run = match &background {
            Ok(run) => graph::find_for_background(run, context)?,
            Err(_) => graph::find(id, context)?,
        };
        match (graph_run, background) {
            // The process has not written the graph's own record yet.
            (Some(graph_run), Ok(run))
                if !graph_run.has_started() && run.state() == State::Running =>
            {
                Ok(Self::Background(Box::new(run)))
            }
            (Some(graph_run), _) if !graph_run.has_started() && graph_run.is_running() => {
                Err(verify::starting(&graph_run))
            }
            (Some(graph_run), background) => {
                let background = background.ok().map(Box::new);
                Ok(Self::Graph(Box::new(graph_run.load()?), background))
            }
            (None, background) => Ok(Self::Background(Box::new(background?))),
        }
    }

    /// Whether this is a graph run that has not written its own record yet.
    pub(super) fn is_starting_graph(&self) -> bool {
        match self {
            Self::Graph(..) => false,
            Self::Background(run) => run.request.is_graph && run.state() == State::Running,
        }
    }
}
