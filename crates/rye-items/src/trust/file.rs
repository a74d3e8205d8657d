//! Trust files.

use lillux::keys::PublicKey;
use serde::{Deserialize, Serialize};

/// The maximum length of an owner's name in characters.
const MAX_OWNER_LENGTH: usize = 200;

/// The content of a trust file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFile {
    /// The trusted key.
    pub key: PublicKey,
    /// The name of the key's owner.
    pub owner: Option<String>,
    /// How the ownership was verified.
    pub attestation: Option<String>,
    /// Whether the key may sign decisions only: no items, and no trust in other keys.
    pub decisions_only: bool,
}

#[derive(Serialize, Deserialize)]
struct Text {
    fingerprint: String,
    owner: Option<String>,
    attestation: Option<String>,
    version: Option<String>,
    category: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    decisions_only: bool,
    public_key: KeyText,
}

#[derive(Serialize, Deserialize)]
struct KeyText {
    pem: String,
}

impl TrustFile {
    /// Parses a trust file, signed or not. The error is the cause, as a fragment.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let text: Text =
            toml::from_str(text).map_err(|e| format!("invalid TOML: {}", one_line(&e)))?;
        let key =
            PublicKey::from_pem(&text.public_key.pem).map_err(|e| format!("invalid key: {e}"))?;
        if text.fingerprint != key.fingerprint().to_string() {
            let found = key.fingerprint();
            return Err(format!(
                "the fingerprint does not match the key, which is {found}"
            ));
        }
        // The owner is displayed when the user decides whether to trust the key.
        let is_one_line = |owner: &String| {
            owner.chars().count() <= MAX_OWNER_LENGTH && !owner.chars().any(char::is_control)
        };
        if !text.owner.iter().all(is_one_line) {
            return Err("the owner must be one short line".to_owned());
        }
        Ok(Self {
            key,
            owner: text.owner,
            attestation: text.attestation,
            decisions_only: text.decisions_only,
        })
    }

    /// Formats the file for signing.
    pub fn to_text(&self) -> String {
        let text = Text {
            fingerprint: self.key.fingerprint().to_string(),
            owner: self.owner.clone(),
            attestation: self.attestation.clone(),
            version: Some("1.0.0".to_owned()),
            category: Some("keys/trusted".to_owned()),
            decisions_only: self.decisions_only,
            public_key: KeyText {
                pem: self.key.to_pem(),
            },
        };
        // Strings and tables of strings always serialize.
        toml::to_string(&text).unwrap_or_default()
    }
}

/// Formats a TOML error on one line, without the source excerpt.
pub(super) fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(", ")
}
