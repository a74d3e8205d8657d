//! Errors of sealing, parsing and opening envelopes.

use std::fmt;

use super::{MAX_LABEL, MAX_RECIPIENTS};
use crate::keys::{Fingerprint, RandomnessError};

/// Error of [`seal`](super::seal).
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// There are no recipients.
    #[error("an envelope needs at least one recipient")]
    NoRecipients,
    /// There are more than [`MAX_RECIPIENTS`] recipients.
    #[error("too many recipients: {0}, at most {MAX_RECIPIENTS} are allowed")]
    TooManyRecipients(usize),
    /// Two recipients have the same key.
    #[error("duplicate recipient: key {0}")]
    DuplicateRecipient(Fingerprint),
    /// The secret is larger than [`MAX_PAYLOAD`](super::MAX_PAYLOAD).
    #[error("the secret is larger than 64 MiB")]
    TooLarge,
    /// The label is longer than [`MAX_LABEL`] or contains control characters.
    #[error("invalid label: at most {MAX_LABEL} bytes without control characters are allowed")]
    BadLabel,
    /// A content key could not be generated.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// Encryption failed, which does not happen with keys that were parsed successfully.
    #[error("cannot encrypt the secret to these keys")]
    Cipher,
}

/// Error of parsing an envelope.
///
/// No message quotes the bytes, because a file that is not an envelope may contain a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseEnvelopeError {
    /// The bytes are not JSON, or are truncated.
    #[error("not an envelope, or truncated: invalid JSON at line {line}, column {column}")]
    NotJson {
        /// Line number, from 1.
        line: usize,
        /// Column number, from 1.
        column: usize,
    },
    /// The JSON document has no version and is not an envelope.
    #[error("not an envelope: there is no `envelope` field with a version")]
    NoVersion,
    /// The envelope has another format version.
    #[error("unsupported envelope version {0}; supported: 1")]
    UnknownVersion(u64),
    /// The envelope uses another cipher suite.
    #[error("unsupported cipher suite")]
    UnknownSuite,
    /// A field is missing, unknown, repeated or invalid.
    #[error("the envelope is damaged: {0}")]
    Damaged(Damage),
    /// The content is valid, but its encoding is not canonical.
    #[error("the envelope was changed: byte {0} differs from the canonical form")]
    NotCanonical(usize),
    /// The input is larger than the maximum size of an envelope.
    #[error("not an envelope: too large")]
    TooLarge,
}

/// The invalid part of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A field is missing, unknown, repeated or of the wrong type.
    Fields,
    /// `created` is not a UTC time with second precision.
    Created,
    /// `label` is too long or contains control characters.
    Label,
    /// `recipients` is empty, too long or contains duplicates.
    Recipients,
    /// `ciphertext` is too short or too long.
    Ciphertext,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fields => "a field is missing, unknown, repeated or of the wrong type",
            Self::Created => "`created` is not a UTC time with second precision",
            Self::Label => "`label` is too long or has control characters",
            Self::Recipients => "`recipients` is empty, too long or has duplicates",
            Self::Ciphertext => "`ciphertext` is too short or too long",
        })
    }
}

/// Error of [`Envelope::open`](super::Envelope::open).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The envelope is not sealed to this key.
    #[error(
        "the envelope is not sealed to key {key}; it is sealed to {}",
        list(sealed_to)
    )]
    NotARecipient {
        /// Fingerprint of the key that was tried.
        key: Fingerprint,
        /// Fingerprints of the keys that open the envelope.
        sealed_to: Vec<Fingerprint>,
    },
    /// The envelope was changed after it was sealed.
    #[error("the envelope was changed after it was sealed")]
    Changed,
    /// The envelope is authentic, but has another label than expected.
    #[error("the envelope is labelled {found:?}, not {expected:?}")]
    LabelMismatch {
        /// The label that the caller expects.
        expected: String,
        /// The label of the envelope.
        found: String,
    },
}

fn list(fingerprints: &[Fingerprint]) -> String {
    let names: Vec<_> = fingerprints.iter().map(ToString::to_string).collect();
    names.join(", ")
}
