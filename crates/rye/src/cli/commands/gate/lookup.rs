//! Finds a gate by a part of its id. Gates of agents and MCP calls are in the session store, those
//! of graphs beside their runs.
//!
//! Closed gates count like pending ones: otherwise a part that was unique once could later select
//! another gate, which the user has not seen.

use rye_engine::protocol::Gate;
use rye_host::lookup::{is_expired, matches_gate, matching_gates, not_found};

use super::graphs::{self, GraphGate};
use crate::cli::context::Context;
use crate::cli::entry_line::describe_decision;
use crate::cli::failure::Failure;

/// A gate of an agent or MCP call, or of a graph run.
pub(super) enum FoundGate {
    Agent(Gate),
    Graph(GraphGate),
}

/// Finds the gate that `part` identifies: its id, its short id, or a unique part of it.
pub(super) fn find(part: &str, context: &Context) -> Result<FoundGate, Failure> {
    let mut matches = matches(part, context)?;
    if let Some(exact) = matches.iter().position(|it| it.gate().id.as_str() == part) {
        return Ok(matches.swap_remove(exact));
    }
    if matches.len() > 1 {
        let message = format!("gate id {part} is ambiguous: {} match", matches.len());
        let failure = Failure::failed("ambiguous", message);
        let failure = failure.candidates(matches.iter().map(describe));
        return Err(failure.hint("rye gate list"));
    }
    matches
        .pop()
        .ok_or_else(|| not_found("gate", part, "rye gate list"))
}

fn matches(part: &str, context: &Context) -> Result<Vec<FoundGate>, Failure> {
    let graphs = graphs::all(context)?.into_iter().map(FoundGate::Graph);
    let graphs = graphs.filter(|it| matches_gate(&it.gate().id, part));
    let agents = matching_gates(context, part)?.into_iter();
    Ok(graphs.chain(agents.map(FoundGate::Agent)).collect())
}

impl FoundGate {
    fn gate(&self) -> &Gate {
        match self {
            Self::Agent(gate) => gate,
            Self::Graph(graph_gate) => &graph_gate.question.gate,
        }
    }

    /// How the gate was closed; `None` while it is pending.
    fn closed(&self) -> Option<String> {
        match self {
            Self::Agent(gate) if is_expired(gate) => Some("expired".to_owned()),
            Self::Agent(gate) => describe_decision(gate),
            Self::Graph(graph_gate) => describe_decision(&graph_gate.current_gate()),
        }
    }
}

/// A line that distinguishes the gate from others. Shows the full id, because the short one may be
/// ambiguous.
fn describe(found: &FoundGate) -> String {
    let state = found.closed().unwrap_or_else(|| "pending".to_owned());
    let gate = found.gate();
    format!("{} ({state}): {}", gate.id, gate.title)
}
