//! Secrets sealed to one or several public keys.
//!
//! An [`Envelope`] is one line of JSON that anyone may see and keep. Whoever holds
//! the [`OpeningKey`] of one of its recipients gets the secret out; nobody else
//! does, and nobody can change any of it unnoticed.
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
//! # What is inside
//!
//! A content key of 32 random bytes encrypts the payload with ChaCha20-Poly1305.
//! For each recipient the content key is sealed by HPKE (RFC 9180: base mode, X25519,
//! HKDF-SHA256, ChaCha20-Poly1305) with the info string `lillux envelope v1`.
//! The whole document but its ciphertext is the payload's associated data, and the
//! `commitment` ties the envelope to one content key, so that all recipients get
//! the same secret.
//!
//! Reading is strict: an envelope has one spelling, and bytes that differ from it
//! in white space, order, escapes, fields or base64 are refused. Two envelopes are thus
//! the same exactly when their bytes are.
//!
//! # What it does not do
//!
//! It does not say who sealed the secret: anyone with the public keys can make an
//! envelope. Where that matters, sign its bytes. It does not hide the payload's
//! size, the label, the time or the recipients. And who has a recipient's private key
//! later can open envelopes of today.
//!
//! # Secrets in memory and in time
//!
//! Secrets, content keys and private keys are zeroed when dropped. Time must
//! not depend on a secret in X25519 (`curve25519-dalek` provides it), in the ciphers
//! and the comparison of their tags (`chacha20` and `poly1305`, the latter with
//! `subtle`), and in the base64 of a key file (`base64ct`). What is compared
//! here, fingerprints, labels and commitments, is public.

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

/// The largest secret, 64 MiB: an envelope is held in memory whole.
pub const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// The most recipients of one envelope.
pub const MAX_RECIPIENTS: usize = 256;

/// The longest label, in bytes.
pub const MAX_LABEL: usize = 1024;

/// A sealed secret.
pub struct Envelope(Document);

/// All that an envelope shows without a key. Believe it after
/// [`open`](Envelope::open) only: before, it is what the bytes claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Version of the form, 1.
    pub version: u64,
    /// The ciphers.
    pub suite: &'static str,
    /// When it was sealed, UTC to the second.
    pub created: String,
    /// What the sender calls it; may be empty.
    pub label: String,
    /// The keys that open it.
    pub recipients: Vec<Fingerprint>,
    /// The secret's length in bytes.
    pub payload_bytes: usize,
}

/// Seals a secret to some keys, under a label that may be empty.
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
            wrapped: key.wrap(recipient)?,
        })
    });
    let mut document = Document {
        created: now_rfc3339(),
        label: label.to_owned(),
        recipients: wrapped.collect::<Result<_, cipher::Refused>>()?,
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
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(SealError::DuplicateRecipient(twice[0]));
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
    /// Reads an envelope's bytes, which must be exactly as [`to_bytes`](Self::to_bytes) wrote them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseEnvelopeError> {
        Document::parse(bytes).map(Self)
    }

    /// The bytes: one line of JSON and its newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.text().into_bytes()
    }

    /// Writes the bytes to a file, whole or not at all.
    pub fn write_file(&self, path: &Path) -> Result<(), WriteError> {
        durable::write(path, &self.to_bytes(), 0o644, IfExists::Replace)
    }

    /// Opens it, and insists on the label where one is expected.
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
        let content_key = ContentKey::unwrap(&recipient.wrapped, key)?;
        if content_key.commitment() != document.commitment {
            return Err(OpenError::Changed);
        }
        let payload =
            content_key.decrypt(&document.ciphertext, document.associated().as_bytes())?;
        // Last, when the label is known to be the sender's.
        match expected_label {
            Some(expected) if expected != document.label => Err(OpenError::LabelMismatch {
                expected: expected.to_owned(),
                found: document.label.clone(),
            }),
            _ => Ok(payload.into()),
        }
    }

    /// What it shows without a key.
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

impl From<cipher::Refused> for SealError {
    fn from(_: cipher::Refused) -> Self {
        Self::Cipher
    }
}

impl From<cipher::Refused> for OpenError {
    fn from(_: cipher::Refused) -> Self {
        Self::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the commitment this envelope would be authentic to Bob: header and
    /// payload are whole under the content key that he was given.
    #[test]
    fn a_recipient_given_another_content_key_than_the_rest_notices() {
        let [alice, bob] = [(); 2].map(|()| OpeningKey::generate().unwrap());
        let [for_all, for_bob] = [(); 2].map(|()| ContentKey::generate().unwrap());
        let recipient = |key: &ContentKey, to: &OpeningKey| Recipient {
            fingerprint: to.public().fingerprint(),
            wrapped: key.wrap(to.public()).ok().unwrap(),
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
