//! `cargo xtask bench`: speed, on the release build, as ratios to a floor.

use anyhow::Result;

use crate::place;
use crate::run::{cargo, program, show};

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
        "rye-benches",
    ]))?;
    let mut benches = program(place::built("release", "rye-benches")?, filter);
    show(benches.env("LILLUX_BIN", place::built("release", "lillux")?))
}
