//! Random bytes from the operating system, for keys.

use zeroize::Zeroizing;

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no random bytes: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

/// Fresh random bytes that are zeroed when dropped.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, NoRandomness> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut_slice())?;
    Ok(bytes)
}
