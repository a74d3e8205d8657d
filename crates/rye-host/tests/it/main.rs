//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod audit;
mod blobs;
mod compaction;
mod crash;
mod credentials;
mod failover;
mod faults;
mod feeds;
mod images;
mod limits;
mod metrics;
mod permissions;
mod receipts;
mod replay;
mod shutdown;
mod soak;
mod threads;
