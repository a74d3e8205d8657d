//! A name for one signature, by which it is known again.

use lillux::Hash;
use lillux::hash::Hasher;
use lillux::keys::PublicKey;

use super::line::SignatureLine;

/// The name of this line's signature by this key. No other has it: a bound signature is
/// over a hash too, so the name says which of the two forms it is.
pub(crate) fn name(key: &PublicKey, line: &SignatureLine) -> Hash {
    let mut hasher = Hasher::default();
    let purpose = line.binding.as_ref().map(|it| it.purpose().name());
    hasher.update(purpose.unwrap_or_default().as_bytes());
    hasher.update(b"\0");
    hasher.update(key.as_bytes());
    hasher.update(line.covered_hash().as_bytes());
    hasher.update(line.signature.as_bytes());
    hasher.finish().0
}
