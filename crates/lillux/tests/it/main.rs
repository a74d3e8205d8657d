//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod cas;
mod cas_faults;
mod cli_keys;
mod cli_processes;
mod detached;
mod envelope;
mod exec;
mod keys;
mod openssl;
mod support;
mod trees;
mod watch;
