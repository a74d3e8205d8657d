//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod audit;
mod blobs;
mod crash;
mod credentials;
mod faults;
mod replay;
