//! Fingerprints of public keys.

use std::fmt;
use std::str::FromStr;

use crate::Hash;

/// The short name of a public key: the first 16 hex characters of the SHA-256
/// of its PEM text.
///
/// The text is the canonical one of [`PublicKey::to_pem`](super::PublicKey::to_pem), so the
/// fingerprint does not depend on the layout of a key file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 8]);

impl Fingerprint {
    /// Computes the fingerprint of a public key from its canonical PEM text.
    pub(crate) fn from_pem(text: &str) -> Self {
        Self::from_pem_hash(&Hash::digest(text))
    }

    /// Computes the fingerprint from the hash of a public key's canonical PEM text.
    pub fn from_pem_hash(hash: &Hash) -> Self {
        Self(std::array::from_fn(|i| hash.as_bytes()[i]))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:016x}", u64::from_be_bytes(self.0)))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Error of parsing a [`Fingerprint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 16 lower-case hex characters")]
pub struct ParseFingerprintError;

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, ParseFingerprintError> {
        // `from_str_radix` would also accept upper case and a sign.
        let hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !hex || text.len() != 16 {
            return Err(ParseFingerprintError);
        }
        let value = u64::from_str_radix(text, 16).map_err(|_| ParseFingerprintError)?;
        Ok(Self(value.to_be_bytes()))
    }
}

crate::serde_as_text!(Fingerprint);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_has_one_spelling() {
        let text = "00a18199041a1ea8";
        assert_eq!(text.parse::<Fingerprint>().unwrap().to_string(), text);
        for other in [
            "",
            "00A18199041A1EA8",
            "+0a18199041a1ea8",
            "0a18199041a1ea8",
            "00a18199041a1ea80",
            "é0a18199041a1ea",
        ] {
            assert_eq!(
                other.parse::<Fingerprint>(),
                Err(ParseFingerprintError),
                "{other}"
            );
        }
    }
}
