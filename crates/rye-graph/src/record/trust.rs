//! Who counts: the keys that sign records, and what people have decided.

use lillux::keys::PublicKey;
use rye_protocol::{Gate, Resolution};

/// Somebody who says whose word counts.
pub trait TrustPolicy: Send + Sync + std::fmt::Debug {
    /// The public key of a fingerprint, if it is trusted.
    fn key(&self, name: &str) -> Option<PublicKey>;

    /// Whether a decision has a receipt that holds, or what is wrong with it.
    fn receipt(&self, gate: &Gate, resolution: &Resolution) -> Result<bool, String>;
}

/// One key and no other. What people decide is taken as it is.
#[derive(Debug)]
pub(crate) struct SingleKey(pub(crate) Option<PublicKey>);

impl TrustPolicy for SingleKey {
    fn key(&self, name: &str) -> Option<PublicKey> {
        let own = self.0.as_ref();
        own.filter(|key| key.fingerprint().to_string() == name)
            .cloned()
    }

    fn receipt(&self, _: &Gate, _: &Resolution) -> Result<bool, String> {
        Ok(true)
    }
}
