//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod client_everything;
mod client_faults;
mod client_http;
mod client_login;
mod client_primitive;
mod support;
