//! `cargo xtask fuzz`: each fuzz target for a bounded time.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::place;

/// The manifest of the fuzz targets, which are not part of the workspace.
pub(crate) fn manifest() -> Option<PathBuf> {
    let manifest = place::workspace().join("fuzz/Cargo.toml");
    manifest.is_file().then_some(manifest)
}

pub(crate) fn main(_arguments: &[String]) -> Result<()> {
    bail!("there are no fuzz targets yet")
}
