//! Which gate is meant: those of agents and MCP clients' calls are in the session store, those
//! of graphs beside their runs.
//!
//! One that has ended counts as one that waits does: a part of an id that was enough once must
//! not mean another gate later, which nobody has looked at.

use rye_engine::protocol::Gate;

use super::graphs::{self, Asked};
use crate::cli::context::Context;
use crate::cli::engine::{gates_with, is_late};
use crate::cli::entry_line::decided;
use crate::cli::failure::Failure;

/// The one that is meant.
pub(super) enum Meant {
    Agent(Gate),
    Graph(Asked),
}

/// Finds it by its id, or by a part that no other has.
pub(super) fn meant(words: &str, context: &Context) -> Result<Meant, Failure> {
    let mut fitting = fitting(words, context)?;
    if let Some(exact) = fitting.iter().position(|it| it.id() == words) {
        return Ok(fitting.swap_remove(exact));
    }
    if fitting.len() > 1 {
        let message = format!("{} gates have ids with {words} in them", fitting.len());
        let failure = Failure::failed("ambiguous", message).fitting(fitting.iter().map(line));
        return Err(failure.hint("rye gate list shows what waits, with the whole ids"));
    }
    fitting.pop().ok_or_else(|| {
        Failure::failed("not_found", format!("there is no gate {words}")).hint("rye gate list")
    })
}

fn fitting(words: &str, context: &Context) -> Result<Vec<Meant>, Failure> {
    let graphs = graphs::all(context)?.into_iter().map(Meant::Graph);
    let agents = gates_with(context, words)?.into_iter().map(Meant::Agent);
    let all = graphs.chain(agents);
    Ok(all.filter(|gate| gate.id().contains(words)).collect())
}

impl Meant {
    fn id(&self) -> &str {
        match self {
            Self::Agent(gate) => gate.id.as_str(),
            Self::Graph(asked) => asked.question.gate.id.as_str(),
        }
    }

    fn title(&self) -> &str {
        match self {
            Self::Agent(gate) => &gate.title,
            Self::Graph(asked) => &asked.question.gate.title,
        }
    }

    /// How it ended; none while it waits.
    fn ended(&self) -> Option<String> {
        match self {
            Self::Agent(gate) if is_late(gate) => Some("expired".to_owned()),
            Self::Agent(gate) => decided(gate),
            Self::Graph(asked) => decided(&asked.as_it_stands()),
        }
    }
}

/// What a person needs to tell it from others.
fn line(gate: &Meant) -> String {
    let state = gate.ended().unwrap_or_else(|| "waits".to_owned());
    format!("{} ({state}): {}", gate.id(), gate.title())
}
