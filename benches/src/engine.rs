//! What a turn costs: durable and in memory, early and late, alone and among many; what a
//! thousand that wait cost; how soon a killed one is finished; and what it costs to reach
//! signed items and to prove what was done.

mod bridge;
mod durable;
mod growth;
pub mod idle;
mod memory;
mod recorded;
mod resume;
mod work;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};

use crate::table::Row;

/// The groups of the engine.
pub const GROUPS: [crate::Group; 6] = [
    ("engine-bridge", bridge::run),
    ("engine-durable", durable::run),
    ("engine-memory", memory::run),
    ("engine-growth", growth::run),
    ("engine-idle", idle::run),
    ("engine-resume", resume::run),
];

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A figure beside one that was agreed upon, where what counts is the figure itself.
fn beside(what: &str, ours: f64, agreed: f64, unit: crate::table::Unit) -> Row {
    Row {
        what: what.to_owned(),
        ours,
        floor: agreed,
        goal: 1.0,
        unit,
    }
}
