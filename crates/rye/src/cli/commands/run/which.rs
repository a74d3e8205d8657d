//! The record of a run that tells most of it.

use super::record::{Run, Runs, State};
use super::{graph, verify};
use crate::cli::context::Context;
use crate::cli::failure::Failure;

/// A run, by the record that tells most of it.
pub(super) enum Which {
    /// Its own, and that of the background, where it was begun there.
    Graph(Box<rye_graph::RunRecord>, Option<Box<Run>>),
    Background(Box<Run>),
}

impl Which {
    pub(super) fn find(runs: &Runs, id: &str, context: &Context) -> Result<Self, Failure> {
        let background = runs.find(id);
        let of_graph = match &background {
            Ok(run) => graph::of_background(run, context)?,
            Err(_) => graph::found(id, context)?,
        };
        match (of_graph, background) {
            // Nothing is written down of it yet, and somebody is about to.
            (Some(of_graph), Ok(run)) if !of_graph.has_begun() && run.state() == State::Running => {
                Ok(Self::Background(Box::new(run)))
            }
            (Some(of_graph), _) if !of_graph.has_begun() && of_graph.is_walked() => {
                Err(verify::starting(&of_graph))
            }
            (Some(of_graph), background) => {
                let background = background.ok().map(Box::new);
                Ok(Self::Graph(Box::new(of_graph.read()?), background))
            }
            (None, background) => Ok(Self::Background(Box::new(background?))),
        }
    }

    /// Whether it is a graph of which nothing is written down yet.
    pub(super) fn has_yet_to_begin(&self) -> bool {
        match self {
            Self::Graph(..) => false,
            Self::Background(run) => run.asked.is_graph && run.state() == State::Running,
        }
    }
}
