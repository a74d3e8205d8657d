//! One file a command.

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

use base64ct::{Base64, Encoding};

/// Bytes that are not text, in JSON.
fn base64(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}
