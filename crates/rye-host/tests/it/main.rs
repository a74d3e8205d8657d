//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod bad_input;
mod blobs;
mod compaction;
mod crash;
mod credentials;
mod failover;
mod feeds;
mod images;
mod leaving;
mod limits;
mod metrics;
mod permissions;
mod proof;
mod receipts;
mod replay;
mod soak;
mod threads;
