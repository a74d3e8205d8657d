//! Speed, as ratios: each figure stands beside a floor taken in the same run,
//! because seconds alone say more about the machine than about the code.
//!
//! `cargo xtask bench [FILTER]` builds what is measured and runs this. The
//! filter is part of a group's name. Ends with 1 if a goal is missed.

#![expect(
    unreachable_pub,
    reason = "a program: groups share one shape, nobody links to it"
)]

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
mod search;
mod signing;
mod table;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use table::Row;

/// A group's name and what measures it.
type Group = (&'static str, fn() -> Result<Vec<Row>>);

const GROUPS: [Group; 11] = [
    ("cas", cas::run),
    ("chat", chat::run),
    ("executor", executor::run),
    ("graph", graph::run),
    ("items", items::run),
    ("mcp-server", mcp_server::run),
    ("mcp", mcp::run),
    ("models", models::run),
    ("processes", processes::run),
    ("search", search::run),
    ("signing", signing::run),
];

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the printer of the benches"
)]
fn main() -> ExitCode {
    if let Some(served) = mcp_server::serve::asked().or_else(engine::idle::asked) {
        return match served {
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
            let over = rows.iter().any(Row::is_over);
            if over {
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

/// The rows of all groups whose name holds the filter.
fn measure_all(filter: &str) -> Result<Vec<Row>> {
    let all = || GROUPS.iter().chain(&engine::GROUPS);
    let groups: Vec<_> = all().filter(|(name, _)| name.contains(filter)).collect();
    let names: Vec<_> = all().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    ensure!(
        !groups.is_empty(),
        "no group matches `{filter}`; there are: {names}"
    );
    let mut rows = Vec::new();
    for (name, run) in groups {
        rows.extend(run().with_context(|| format!("group `{name}`"))?);
    }
    Ok(rows)
}
