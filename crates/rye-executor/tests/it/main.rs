//! Integration tests, in one binary so that the crate is linked once.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod behaviour;
mod builtin;
mod chain_cache;
mod declarations;
mod dependencies;
mod direct;
mod http;
mod interpreters;
mod languages;
mod memory;
mod paths;
mod python;
mod refusals;
mod runtimes;
mod sandbox;
mod security;
mod shared;
mod support;
mod typescript;
