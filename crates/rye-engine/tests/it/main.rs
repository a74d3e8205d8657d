//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod compaction;
mod failover;
mod feeds;
mod images;
mod limits;
mod permissions;
mod queue;
mod quotas;
mod receipts;
mod requests;
mod sandboxes;
mod settings;
mod shutdown;
mod soak;
mod threads;
mod tools;
mod upkeep;
