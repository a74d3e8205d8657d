//! Stores of the engine: where the record is kept.
//!
//! [`Sqlite`] is one file, durable, for any number of processes of a machine. [`Memory`] is
//! gone with the process. Both do what `rye-store-contract` tries, as any other must.

mod memory;
mod rules;
mod sqlite;

pub use memory::Memory;
pub use sqlite::Sqlite;
