//! The agent engine: prompts go in, events come out, and nothing is done before it is
//! written down.

pub mod clock;
pub mod model;
mod runner;
pub mod sandbox;
pub mod store;
pub mod tool;
