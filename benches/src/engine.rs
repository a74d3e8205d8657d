//! Benchmarks of the engine: turns in memory and on disk, growth of a session, idle sessions,
//! recovery after a kill, meta-tools and verification.

mod durable;
mod fixture;
mod growth;
pub mod idle;
mod memory;
mod meta_tools;
mod recording_store;
mod resume;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};

use crate::table::Row;

/// Groups of engine benchmarks.
pub const GROUPS: [crate::Group; 6] = [
    ("engine-meta-tools", meta_tools::run),
    ("engine-durable", durable::run),
    ("engine-memory", memory::run),
    ("engine-growth", growth::run),
    ("engine-idle", idle::run),
    ("engine-resume", resume::run),
];

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A row with an absolute budget instead of a measured baseline.
fn against_budget(what: &str, ours: f64, budget: f64, unit: crate::table::Unit) -> Row {
    Row {
        name: what.to_owned(),
        ours,
        baseline: budget,
        goal: 1.0,
        unit,
    }
}
