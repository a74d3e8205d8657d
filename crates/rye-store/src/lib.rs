//! Stores of the engine: where the record is kept.
//!
//! [`Sqlite`] is one file, durable, for any number of processes of a machine. [`Memory`] is
//! gone with the process. Both do what `rye-store-contract` tries, as any other must.
//! Beside them, [`FileBlobs`] and [`MemoryBlobs`] keep what is too long for the record, and
//! [`SealedCredentials`] what nobody is to see.

mod blobs;
mod credentials;
mod memory;
mod rules;
mod sqlite;

pub use blobs::{FileBlobs, MemoryBlobs};
pub use credentials::{KeyOf, SealedCredentials};
pub use memory::Memory;
pub use sqlite::{Closing, Condition, Soundness, Sqlite, examine};
