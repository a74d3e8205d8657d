//! Envelopes: secrets encrypted to one or several public keys.
//!
//! An [`Envelope`] is one line of JSON that need not be kept secret. Only the holder of a
//! recipient's [`OpeningKey`] can decrypt it, and any change to it is detected.
//!
//! ```
//! use lillux::envelope::{Envelope, OpeningKey, Secret, seal};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (alice, bob) = (OpeningKey::generate()?, OpeningKey::generate()?);
//! let recipients = [alice.public().clone(), bob.public().clone()];
//! let envelope = seal(&Secret::new(b"hunter2".to_vec()), &recipients, "db/password")?;
//! let bytes = envelope.to_bytes();
//!
//! let read = Envelope::parse(&bytes)?;
//! assert_eq!(read.inspect().label, "db/password");
//! assert_eq!(read.open(&bob, Some("db/password"))?.expose(), b"hunter2");
//! # Ok(())
//! # }
//! ```
//!
//! # Construction
//!
//! A content key of 32 random bytes encrypts the payload with ChaCha20-Poly1305. For each
//! recipient, HPKE encrypts the content key (RFC 9180: base mode, X25519, HKDF-SHA256,
//! ChaCha20-Poly1305) with the info string `lillux envelope v1`. The document without its
//! ciphertext is the payload's associated data. The `commitment` binds the envelope to one
//! content key, so that all recipients get the same secret.
//!
//! Parsing is strict: an envelope has exactly one encoding, and bytes that differ from it in
//! white space, order, escapes, fields or base64 are rejected. So two envelopes are equal
//! exactly if their bytes are.
//!
//! # Limitations
//!
//! An envelope does not prove who sealed it: anyone with the public keys can create one. If that
//! matters, sign its bytes. It does not hide the payload's size, the label, the time or the
//! recipients. There is no forward secrecy: a private key that leaks later opens old envelopes.
//!
//! # Secrets in memory and timing
//!
//! Secrets, content keys and private keys are zeroed when dropped. Operations on secrets run in
//! constant time: X25519 (`curve25519-dalek`), the ciphers and the comparison of their tags
//! (`chacha20`, and `poly1305` with `subtle`), and the base64 of key files (`base64ct`). This
//! module compares only public values: fingerprints, labels and commitments.

mod cipher;
mod document;
mod error;
mod keys;
mod secret;

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::durable::{self, IfExists};
use crate::keys::Fingerprint;
use crate::time::now_rfc3339;

use cipher::{ContentKey, TAG};
use document::{Document, Recipient, SUITE, VERSION, is_label};

pub use crate::durable::WriteError;
pub use document::MAX_DOCUMENT;
pub use error::{Damage, OpenError, ParseEnvelopeError, SealError};
pub use keys::{OpeningKey, SealingKey};
pub use secret::Secret;

/// Maximum size of a secret, 64 MiB, since an envelope is processed in memory.
pub const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// Maximum number of recipients of an envelope.
pub const MAX_RECIPIENTS: usize = 256;

/// Maximum length of a label in bytes.
pub const MAX_LABEL: usize = 1024;

/// An encrypted secret.
pub struct Envelope(Document);

/// The public metadata of an envelope. It is authenticated only by [`open`](Envelope::open).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Format version, 1.
    pub version: u64,
    /// Name of the cipher suite.
    pub suite: &'static str,
    /// When the envelope was sealed, UTC with second precision.
    pub created: String,
    /// The sender's label; may be empty.
    pub label: String,
    /// Fingerprints of the keys that open the envelope.
    pub recipients: Vec<Fingerprint>,
    /// Length of the secret in bytes.
    pub payload_bytes: usize,
}

/// Encrypts a secret to the recipients' keys. The label may be empty.
pub fn seal(
    secret: &Secret,
    recipients: &[SealingKey],
    label: &str,
) -> Result<Envelope, SealError> {
    check(secret, recipients, label)?;
    let key = ContentKey::generate()?;
    let wrapped = recipients.iter().map(|recipient| {
        Ok(Recipient {
            fingerprint: recipient.fingerprint(),
            wrapped_key: key.wrap(recipient)?,
        })
    });
    let mut document = Document {
        created: now_rfc3339(),
        label: label.to_owned(),
        recipients: wrapped.collect::<Result<_, cipher::CipherError>>()?,
        commitment: key.commitment(),
        ciphertext: Vec::new(),
    };
    document.ciphertext = key.encrypt(secret.expose(), document.associated().as_bytes())?;
    Ok(Envelope(document))
}

fn check(secret: &Secret, recipients: &[SealingKey], label: &str) -> Result<(), SealError> {
    if recipients.is_empty() {
        return Err(SealError::NoRecipients);
    }
    if recipients.len() > MAX_RECIPIENTS {
        return Err(SealError::TooManyRecipients(recipients.len()));
    }
    let mut names: Vec<_> = recipients.iter().map(SealingKey::fingerprint).collect();
    names.sort_unstable();
    if let Some(duplicate) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(SealError::DuplicateRecipient(duplicate[0]));
    }
    if secret.expose().len() > MAX_PAYLOAD {
        return Err(SealError::TooLarge);
    }
    if !is_label(label) {
        return Err(SealError::BadLabel);
    }
    Ok(())
}

impl Envelope {
    /// Parses an envelope. The bytes must be exactly those of [`to_bytes`](Self::to_bytes).
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseEnvelopeError> {
        Document::parse(bytes).map(Self)
    }

    /// The envelope as one line of JSON with a newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.text().into_bytes()
    }

    /// Writes the envelope to a file atomically.
    pub fn write_file(&self, path: &Path) -> Result<(), WriteError> {
        durable::write(path, &self.to_bytes(), 0o644, IfExists::Replace)
    }

    /// Decrypts the secret. Fails if the label differs from `expected_label`.
    pub fn open(
        &self,
        key: &OpeningKey,
        expected_label: Option<&str>,
    ) -> Result<Secret, OpenError> {
        let document = &self.0;
        let name = key.public().fingerprint();
        let recipient = document.recipients.iter().find(|r| r.fingerprint == name);
        let recipient = recipient.ok_or_else(|| OpenError::NotARecipient {
            key: name,
            sealed_to: document.recipients.iter().map(|r| r.fingerprint).collect(),
        })?;
        let content_key = ContentKey::unwrap(&recipient.wrapped_key, key)?;
        if content_key.commitment() != document.commitment {
            return Err(OpenError::Changed);
        }
        let payload =
            content_key.decrypt(&document.ciphertext, document.associated().as_bytes())?;
        // Last, because the label is authenticated only now.
        match expected_label {
            Some(expected) if expected != document.label => Err(OpenError::LabelMismatch {
                expected: expected.to_owned(),
                found: document.label.clone(),
            }),
            _ => Ok(payload.into()),
        }
    }

    /// The public metadata.
    pub fn inspect(&self) -> Inspection {
        Inspection {
            version: VERSION,
            suite: SUITE,
            created: self.0.created.clone(),
            label: self.0.label.clone(),
            recipients: self.0.recipients.iter().map(|r| r.fingerprint).collect(),
            payload_bytes: self.0.ciphertext.len() - TAG,
        }
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Envelope").field(&self.inspect()).finish()
    }
}

impl From<cipher::CipherError> for SealError {
    fn from(_: cipher::CipherError) -> Self {
        Self::Cipher
    }
}

impl From<cipher::CipherError> for OpenError {
    fn from(_: cipher::CipherError) -> Self {
        Self::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the commitment, this envelope would be authentic to Bob, since header and payload
    /// match the content key that he received.
    #[test]
    fn recipient_with_another_content_key_than_the_others_is_detected() {
        let [alice, bob] = [(); 2].map(|()| OpeningKey::generate().unwrap());
        let [for_all, for_bob] = [(); 2].map(|()| ContentKey::generate().unwrap());
        let recipient = |key: &ContentKey, to: &OpeningKey| Recipient {
            fingerprint: to.public().fingerprint(),
            wrapped_key: key.wrap(to.public()).ok().unwrap(),
        };
        let mut document = Document {
            created: now_rfc3339(),
            label: String::new(),
            recipients: vec![recipient(&for_all, &alice), recipient(&for_bob, &bob)],
            commitment: for_all.commitment(),
            ciphertext: Vec::new(),
        };
        let associated = document.associated();
        document.ciphertext = for_bob
            .encrypt(b"a lie", associated.as_bytes())
            .ok()
            .unwrap();
        let refused = Envelope(document).open(&bob, None).unwrap_err();
        assert_eq!(refused, OpenError::Changed);
    }
}
