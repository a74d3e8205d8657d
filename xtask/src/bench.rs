//! `cargo xtask bench`: benchmarks of the release build.

use anyhow::Result;

use crate::paths;
use crate::process::{cargo, program, run};
use crate::tools;

/// Builds the binaries and the benchmarks, and runs those that match the filter.
pub(crate) fn main(filter: &[String]) -> Result<()> {
    run(&mut cargo([
        "build",
        "--locked",
        "--release",
        "--package",
        "lillux",
        "--package",
        "rye",
        "--package",
        "rye-benches",
    ]))?;
    let mut benches = program(paths::built_program("release", "rye-benches")?, filter);
    for (variable, binary) in [("LILLUX_BIN", "lillux"), ("RYE_BIN", "rye")] {
        benches.env(variable, paths::built_program("release", binary)?);
    }
    // Install the programs we compare with only if needed, because they are large.
    let group = filter.first().map_or("", String::as_str);
    if "mcp-server".contains(group) && group != "server" {
        benches.env("RYE_BENCH_FASTMCP", tools::fastmcp()?);
    }
    if "engine-memory".contains(group) || "models".contains(group) {
        benches.env("RYE_BENCH_PI", tools::pi()?);
        benches.env("RYE_BENCH_NODE", tools::node22()?);
    }
    if "graph".contains(group) {
        let directory = tools::langgraph()?;
        benches.env("RYE_BENCH_LANGGRAPH", directory.join("bin/python"));
        benches.env("PYTHONPATH", directory);
    }
    run(&mut benches)
}
