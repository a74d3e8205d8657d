//! The same chain of nodes on `LangGraph`, where `RYE_BENCH_LANGGRAPH` names a Python that has
//! it: `cargo xtask bench graph` sees to that.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rye_items::metadata::Effect;
use tokio::runtime::Runtime;

use super::{chain, in_memory, written};
use crate::table::{Row, Unit};

const SCRIPT: &str = include_str!("peer.py");
/// Nodes of the chain that both walk.
const LENGTH: usize = 100;
/// Turns of each.
const ROUNDS: usize = 5;

pub(super) fn rows(runtime: &Runtime) -> Result<Vec<Row>> {
    let Some(python) = std::env::var_os("RYE_BENCH_LANGGRAPH") else {
        return Ok(Vec::new());
    };
    let theirs = |mode: &str| -> Result<f64> {
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT, &LENGTH.to_string(), mode]);
        let output = command.output().context("cannot run LangGraph's Python")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "LangGraph: {said}");
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    let graph = chain(LENGTH)?;
    let worst = (f64::MAX, f64::MAX);
    let (mut memory, mut disk, mut sync) = (worst, worst, worst);
    for _ in 0..ROUNDS {
        memory.0 = memory.0.min(theirs("memory")?);
        memory.1 = memory.1.min(in_memory(runtime, &graph, LENGTH)?);
        disk.0 = disk.0.min(theirs("sqlite")?);
        sync.0 = sync.0.min(theirs("sync")?);
        for _ in 0..ROUNDS {
            let ours = |effect| written(runtime, &graph, LENGTH, effect);
            disk.1 = disk.1.min(ours(Effect::Pure)?.0);
            sync.1 = sync.1.min(ours(Effect::AtMostOnce)?.0);
        }
    }
    let row = |what: &str, (floor, ours): (f64, f64), goal| Row {
        what: what.to_owned(),
        ours,
        floor,
        goal,
        unit: Unit::Seconds,
    };
    Ok(vec![
        row("a node in memory, beside LangGraph's", memory, 0.05),
        // As it comes, theirs is written while the next node runs; ours before that, and
        // what may be repeated does not wait for the disk.
        row("a written node, beside LangGraph's with SQLite", disk, 0.1),
        // Both wait for the disk before the next node, and most of the time is the disk's.
        row(
            "one that must not be repeated, beside theirs with `sync`",
            sync,
            0.5,
        ),
    ])
}
