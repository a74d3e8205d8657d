//! The same chain on `LangGraph`, if `RYE_BENCH_LANGGRAPH` is the path of a Python that has it.
//! `cargo xtask bench graph` sets it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rye_items::metadata::EffectClass;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{LENGTHS, chain, in_memory, journaled};
use crate::table::{NO_GOAL, Row};

const SCRIPT: &str = include_str!("peer.py");
/// Rounds of each.
const ROUNDS: usize = 3;

/// A durability mode of both engines.
struct Mode {
    /// Name of the mode in `peer.py`.
    theirs: &'static str,
    what: &'static str,
    /// Effect class of our tool; `None` to run in memory.
    effect: Option<EffectClass>,
    goal: f64,
}

const MODES: [Mode; 3] = [
    Mode {
        theirs: "memory",
        what: "in memory vs. LangGraph",
        effect: None,
        goal: 0.05,
    },
    // Defaults of both. LangGraph writes in a thread while the next node runs; ours writes
    // and signs before the next node, and syncs only for tools that must not be repeated.
    Mode {
        theirs: "sqlite",
        what: "journaled vs. LangGraph with SQLite",
        effect: Some(EffectClass::Pure),
        goal: 1.0,
    },
    // The most durable modes: ours syncs before and after each node, LangGraph before the
    // next node. Mostly the disk's time, so there is no goal.
    Mode {
        theirs: "sync",
        what: "synced before the next node vs. LangGraph with durability=sync",
        effect: Some(EffectClass::AtMostOnce),
        goal: NO_GOAL,
    },
];

pub(super) fn rows(runtime: &Runtime, directory: &TempDir) -> Result<Vec<Row>> {
    let Some(python) = std::env::var_os("RYE_BENCH_LANGGRAPH") else {
        return Ok(Vec::new());
    };
    let theirs = |length: usize, mode: &str| -> Result<f64> {
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT, &length.to_string(), mode]);
        let output = command.output().context("cannot run LangGraph's Python")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "LangGraph: {stderr}");
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    let mut rows = Vec::new();
    for mode in MODES {
        for length in LENGTHS {
            let graph = chain(length)?;
            let (mut baseline, mut ours) = (f64::MAX, f64::MAX);
            for _ in 0..ROUNDS {
                baseline = baseline.min(theirs(length, mode.theirs)?);
                for _ in 0..ROUNDS {
                    let took = match mode.effect {
                        None => in_memory(runtime, &graph, length)?,
                        Some(effect) => journaled(runtime, &graph, length, effect, directory)?.0,
                    };
                    ours = ours.min(took);
                }
            }
            let what = format!("node, chain of {length}, {}", mode.what);
            rows.push(Row::time(&what, (baseline, ours), mode.goal));
        }
    }
    Ok(rows)
}
