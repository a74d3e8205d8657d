//! One file a command.

pub(crate) mod cas;
pub(crate) mod time;

pub(crate) mod envelope;
pub(crate) mod keypair;
pub(crate) mod sign;
pub(crate) mod verify;
