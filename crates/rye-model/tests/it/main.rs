//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod conversion;
mod endings;
mod faults;
mod fixtures;
mod http_apis;
mod scripted;
mod support;
