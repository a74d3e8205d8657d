//! The commands.

pub(crate) mod cas;
pub(crate) mod envelope;
pub(crate) mod exec;
pub(crate) mod keys;
pub(crate) mod processes;
