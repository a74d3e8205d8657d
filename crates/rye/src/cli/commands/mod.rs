//! One file a command.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod vault;
