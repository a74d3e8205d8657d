//! `cargo xtask bench`: speed, on the release build, as ratios to a floor.

use anyhow::Result;

use crate::place;
use crate::run::{cargo, program, show};
use crate::tools;

/// Builds what is measured and what measures, then measures; the arguments are
/// the filter.
pub(crate) fn main(filter: &[String]) -> Result<()> {
    show(&mut cargo([
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
    let mut benches = program(place::built("release", "rye-benches")?, filter);
    for (variable, binary) in [("LILLUX_BIN", "lillux"), ("RYE_BIN", "rye")] {
        benches.env(variable, place::built("release", binary)?);
    }
    // Only those rows need them, and they are large.
    let asked = filter.first().map_or("", String::as_str);
    if "mcp-server".contains(asked) {
        benches.env("RYE_BENCH_FASTMCP", tools::fastmcp()?);
    }
    if "engine-memory".contains(asked) || "models".contains(asked) {
        benches.env("RYE_BENCH_PI", tools::pi()?);
        benches.env("RYE_BENCH_NODE", tools::node22()?);
    }
    if "graph".contains(asked) {
        let folder = tools::langgraph()?;
        benches.env("RYE_BENCH_LANGGRAPH", folder.join("bin/python"));
        benches.env("PYTHONPATH", folder);
    }
    show(&mut benches)
}
