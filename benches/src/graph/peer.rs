//! The same chain of nodes on `LangGraph`, where `RYE_BENCH_LANGGRAPH` names a Python that has
//! it: `cargo xtask bench graph` sees to that.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rye_items::metadata::Effect;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{LENGTHS, chain, in_memory, written};
use crate::table::{NO_GOAL, Row};

const SCRIPT: &str = include_str!("peer.py");
/// Turns of each.
const ROUNDS: usize = 3;

/// What is compared of both.
struct Mode {
    /// How their script calls it.
    theirs: &'static str,
    what: &'static str,
    /// The effect of our tool; in memory where there is none.
    effect: Option<Effect>,
    goal: f64,
}

const MODES: [Mode; 3] = [
    Mode {
        theirs: "memory",
        what: "in memory, beside LangGraph's",
        effect: None,
        goal: 0.05,
    },
    // Both as they come. Theirs is handed to a thread that writes while the next node runs;
    // ours is written and signed before that, and waits for the disk only where what is done
    // must not be repeated, which adding one may be.
    Mode {
        theirs: "sqlite",
        what: "written down, beside LangGraph's with SQLite",
        effect: Some(Effect::Pure),
        goal: 0.1,
    },
    // The other ends of both: ours is on the disk before and after each node, theirs is
    // written before the next node, which with SQLite's defaults waits for the disk too.
    // Most of it is the disk's time, so it is told and has no goal.
    Mode {
        theirs: "sync",
        what: "on the disk before the next, beside LangGraph's with durability=sync",
        effect: Some(Effect::AtMostOnce),
        goal: NO_GOAL,
    },
];

pub(super) fn rows(runtime: &Runtime, folder: &TempDir) -> Result<Vec<Row>> {
    let Some(python) = std::env::var_os("RYE_BENCH_LANGGRAPH") else {
        return Ok(Vec::new());
    };
    let theirs = |length: usize, mode: &str| -> Result<f64> {
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT, &length.to_string(), mode]);
        let output = command.output().context("cannot run LangGraph's Python")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "LangGraph: {said}");
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    let mut rows = Vec::new();
    for mode in MODES {
        for length in LENGTHS {
            let graph = chain(length)?;
            let (mut floor, mut ours) = (f64::MAX, f64::MAX);
            for _ in 0..ROUNDS {
                floor = floor.min(theirs(length, mode.theirs)?);
                for _ in 0..ROUNDS {
                    let took = match mode.effect {
                        None => in_memory(runtime, &graph, length)?,
                        Some(effect) => written(runtime, &graph, length, effect, folder)?.0,
                    };
                    ours = ours.min(took);
                }
            }
            let what = format!("a node of {length} {}", mode.what);
            rows.push(Row::time(&what, (floor, ours), mode.goal));
        }
    }
    Ok(rows)
}
