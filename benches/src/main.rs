//! Benchmarks as ratios to a baseline measured in the same run, because absolute times say
//! more about the machine than about the code.
//!
//! `cargo xtask bench [FILTER]` builds the binaries and runs this program. The filter is a group's
//! name or a part of it. The exit code is 1 if a goal is missed.

#![expect(unreachable_pub, reason = "a program, not a library")]

mod acp;
mod cas;
mod chat;
mod engine;
mod executor;
mod graph;
mod items;
mod mcp;
mod mcp_server;
mod measure;
mod models;
mod processes;
mod sandbox;
mod search;
mod server;
mod signing;
mod table;
mod undo;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use table::Row;

/// Name and function of a group of benchmarks.
type Group = (&'static str, fn() -> Result<Vec<Row>>);

const GROUPS: [Group; 15] = [
    ("acp", acp::run),
    ("cas", cas::run),
    ("chat", chat::run),
    ("executor", executor::run),
    ("graph", graph::run),
    ("items", items::run),
    ("mcp-server", mcp_server::run),
    ("mcp", mcp::run),
    ("models", models::run),
    ("processes", processes::run),
    ("sandbox", sandbox::run),
    ("search", search::run),
    ("server", server::run),
    ("signing", signing::run),
    ("undo", undo::run),
];

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the only place that prints"
)]
fn main() -> ExitCode {
    if let Some(result) =
        mcp_server::serve::run_if_requested().or_else(engine::idle::run_if_requested)
    {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let filter = std::env::args().nth(1).unwrap_or_default();
    match measure_all(&filter) {
        Ok(rows) => {
            println!("{}", table::render(&rows));
            let missed = rows.iter().any(Row::misses_goal);
            if missed {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the group that the filter names, or else all groups whose name contains it.
fn measure_all(filter: &str) -> Result<Vec<Row>> {
    let all = || GROUPS.iter().chain(&engine::GROUPS);
    // A name that is part of another one selects its own group only.
    let is_name = all().any(|(name, _)| *name == filter);
    let is_selected = |name: &str| name == filter || !is_name && name.contains(filter);
    let groups: Vec<_> = all().filter(|(name, _)| is_selected(name)).collect();
    let names: Vec<_> = all().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    ensure!(
        !groups.is_empty(),
        "no group matches `{filter}`; available: {names}"
    );
    let mut rows = Vec::new();
    for (name, run) in groups {
        rows.extend(run().with_context(|| format!("group `{name}`"))?);
    }
    Ok(rows)
}
