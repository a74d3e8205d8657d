//! Random bytes from the operating system, for keys.

use zeroize::Zeroizing;

/// Error of the operating system's random number generator.
#[derive(Debug, thiserror::Error)]
#[error("cannot get random bytes from the operating system: {0}")]
pub struct RandomnessError(#[from] getrandom::Error);

/// 32 secret bytes, zeroed when dropped. Boxed, because moving an array would leave an unzeroed
/// copy on the stack.
pub(crate) type SecretBytes = Box<Zeroizing<[u8; 32]>>;

/// Generates 32 random bytes.
pub(crate) fn random() -> Result<SecretBytes, RandomnessError> {
    let mut bytes = SecretBytes::default();
    getrandom::fill(bytes.as_mut_slice())?;
    Ok(bytes)
}
