//! Stores of documents: in memory, and in the session database.

mod memory;
mod sqlite;

pub use memory::MemoryDocuments;
pub use sqlite::SqliteDocuments;
