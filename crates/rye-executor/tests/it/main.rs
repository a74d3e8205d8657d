//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod behaviour;
mod builtin;
mod dependencies;
mod holes;
mod http;
mod kept;
mod languages;
mod memory;
mod paths;
mod python;
mod refusals;
mod runtimes;
mod shared;
mod support;
mod typescript;
