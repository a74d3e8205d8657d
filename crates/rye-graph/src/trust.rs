//! Trust policy for records and decisions.

use lillux::keys::PublicKey;
use rye_protocol::{Gate, Resolution};

/// Decides which keys and decisions are trusted.
pub trait TrustPolicy: Send + Sync + std::fmt::Debug {
    /// Returns the public key with this fingerprint, if it is trusted.
    fn key(&self, fingerprint: &str) -> Option<PublicKey>;

    /// Whether a decision has a valid receipt; the error explains why a receipt is invalid.
    fn receipt(&self, gate: &Gate, resolution: &Resolution) -> Result<bool, String>;
}

/// Trusts a single key and accepts all decisions.
#[derive(Debug)]
pub(crate) struct SingleKey(pub(crate) Option<PublicKey>);

impl TrustPolicy for SingleKey {
    fn key(&self, fingerprint: &str) -> Option<PublicKey> {
        let key = self.0.as_ref();
        key.filter(|key| key.fingerprint().to_string() == fingerprint)
            .cloned()
    }

    fn receipt(&self, _: &Gate, _: &Resolution) -> Result<bool, String> {
        Ok(true)
    }
}
