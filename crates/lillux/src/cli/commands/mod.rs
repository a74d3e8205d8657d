//! The commands, one file each.

pub(crate) mod cas;
pub(crate) mod envelope;
pub(crate) mod exec;
pub(crate) mod keypair;
pub(crate) mod kill;
pub(crate) mod sign;
pub(crate) mod spawn;
pub(crate) mod status;
pub(crate) mod time;
pub(crate) mod verify;
pub(crate) mod watch;
