//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod agent;
mod contract;
mod egress;
mod escape;
mod host_death;
mod remote;
mod review;
mod tools;
mod workloads;
