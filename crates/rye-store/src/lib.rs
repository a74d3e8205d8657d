//! Stores of the engine: where the record is kept.
//!
//! [`Memory`] is gone with the process.

mod memory;
mod rules;

pub use memory::Memory;
