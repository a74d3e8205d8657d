//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod blobs;
mod contract_memory;
#[cfg(feature = "cluster")]
mod contract_postgres;
mod contract_sqlite;
#[cfg(feature = "cluster")]
mod credentials;
mod damage;
mod documents;
mod equivalence;
mod files;
#[cfg(feature = "cluster")]
mod hosts;
mod processes;
mod prompts;

mod turns;
