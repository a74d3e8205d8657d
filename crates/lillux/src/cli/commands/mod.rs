//! One file a command.

pub(crate) mod cas;
pub(crate) mod time;
