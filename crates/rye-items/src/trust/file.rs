//! The file that trusts a key.

use lillux::keys::PublicKey;
use serde::{Deserialize, Serialize};

/// Longer than any name.
const LONGEST_OWNER: usize = 200;

/// What a trust file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFile {
    /// The key.
    pub key: PublicKey,
    /// Whose it is.
    pub owner: Option<String>,
    /// How one came to believe that.
    pub attestation: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    fingerprint: String,
    owner: Option<String>,
    attestation: Option<String>,
    version: Option<String>,
    category: Option<String>,
    public_key: KeyText,
}

#[derive(Serialize, Deserialize)]
struct KeyText {
    pem: String,
}

impl TrustFile {
    /// Reads a trust file, signed or not. The error is a sentence.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let text: Text =
            toml::from_str(text).map_err(|e| format!("it cannot be read: {}", one_line(&e)))?;
        let key = PublicKey::from_pem(&text.public_key.pem).map_err(|e| format!("its key: {e}"))?;
        if text.fingerprint != key.fingerprint().to_string() {
            let found = key.fingerprint();
            return Err(format!(
                "its fingerprint is not that of its key, which is {found}"
            ));
        }
        // It is shown to the person who is asked whether to trust the key.
        let is_one_line = |owner: &String| {
            owner.chars().count() <= LONGEST_OWNER && !owner.chars().any(char::is_control)
        };
        if !text.owner.iter().all(is_one_line) {
            return Err("its owner is not one short line".to_owned());
        }
        Ok(Self {
            key,
            owner: text.owner,
            attestation: text.attestation,
        })
    }

    /// The file's text, to be signed.
    pub fn to_text(&self) -> String {
        let text = Text {
            fingerprint: self.key.fingerprint().to_string(),
            owner: self.owner.clone(),
            attestation: self.attestation.clone(),
            version: Some("1.0.0".to_owned()),
            category: Some("keys/trusted".to_owned()),
            public_key: KeyText {
                pem: self.key.to_pem(),
            },
        };
        // Strings and tables of strings: there is nothing that could not be written.
        toml::to_string(&text).unwrap_or_default()
    }
}

/// What is wrong with a TOML text, and where, without its drawing.
pub(super) fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(", ")
}
