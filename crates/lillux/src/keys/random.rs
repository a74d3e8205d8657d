//! Random bytes from the operating system, for keys.

use zeroize::Zeroizing;

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes: {0}")]
pub struct RandomnessError(#[from] getrandom::Error);

/// 32 secret bytes, zeroed when dropped. On the heap, because whatever is moved
/// leaves a copy on the stack that nobody zeroes.
pub(crate) type SecretBytes = Box<Zeroizing<[u8; 32]>>;

/// Fresh random bytes.
pub(crate) fn random() -> Result<SecretBytes, RandomnessError> {
    let mut bytes = SecretBytes::default();
    getrandom::fill(bytes.as_mut_slice())?;
    Ok(bytes)
}
