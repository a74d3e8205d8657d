//! A name for one signature, by which it is known again.

use lillux::Hash;
use lillux::hash::Hasher;
use lillux::keys::{PublicKey, Signature};

/// The name of this signature of this key over this hash. No other has it.
pub(crate) fn name(key: &PublicKey, hash: &Hash, signature: &Signature) -> Hash {
    let mut hasher = Hasher::default();
    hasher.update(key.as_bytes());
    hasher.update(hash.as_bytes());
    hasher.update(signature.as_bytes());
    hasher.finish().0
}
