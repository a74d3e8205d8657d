//! What can be wrong when sealing, reading or opening.

use std::fmt;

use super::{MAX_LABEL, MAX_RECIPIENTS};
use crate::keys::{Fingerprint, RandomnessError};

/// A secret that could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// Nobody could open it.
    #[error("a secret is sealed to at least one public key, none was given")]
    NoRecipients,
    /// More than an envelope names.
    #[error("{0} recipients, an envelope names at most {MAX_RECIPIENTS}")]
    TooManyRecipients(usize),
    /// The same key twice.
    #[error("the key {0} is given twice")]
    DuplicateRecipient(Fingerprint),
    /// More than an envelope holds.
    #[error("the secret is larger than 64 MiB, which is the most an envelope holds")]
    TooLarge,
    /// Too long, or not one line of text.
    #[error("a label is at most {MAX_LABEL} bytes and has no control characters")]
    BadLabel,
    /// No content key could be made.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// The ciphers refused, which a key that was checked when read does not bring about.
    #[error("the secret cannot be encrypted to these keys")]
    Cipher,
}

/// Bytes that are not an envelope as this crate writes one.
///
/// No message quotes the bytes: what is taken for an envelope by mistake may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseEnvelopeError {
    /// Not JSON at all, or cut short.
    #[error("not an envelope, or one cut short: not JSON at line {line}, column {column}")]
    NotJson {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// A JSON document of something else.
    #[error("not an envelope: no `envelope` field with a version")]
    NoVersion,
    /// Written by a program that knows more.
    #[error("the envelope has version {0}, this program reads version 1")]
    UnknownVersion(u64),
    /// Written with other ciphers.
    #[error("the envelope was sealed with a suite of ciphers that this program does not know")]
    UnknownSuite,
    /// A field is missing, added, repeated or holds something it cannot.
    #[error("the envelope is damaged: {0}")]
    Damaged(Damage),
    /// The right content, but not spelled as it is written.
    #[error("the envelope was changed: at byte {0} it is not as it was written")]
    NotCanonical(usize),
    /// More bytes than any envelope.
    #[error("larger than any envelope")]
    TooLarge,
}

/// What about an envelope's content cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Missing, unknown or repeated, or of the wrong kind.
    Fields,
    /// Not a time in UTC to the second.
    Created,
    /// Too long or with control characters.
    Label,
    /// None, too many, or one twice.
    Recipients,
    /// Too short to be authentic, or too long.
    Ciphertext,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fields => "a field is missing, unknown, repeated or of the wrong kind",
            Self::Created => "`created` is not a time in UTC to the second",
            Self::Label => "`label` is too long or has control characters",
            Self::Recipients => "`recipients` is empty, too long or names one twice",
            Self::Ciphertext => "`ciphertext` is too short or too long",
        })
    }
}

/// An envelope that did not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It was sealed to others.
    #[error(
        "the envelope is not sealed to key {key}; it is sealed to {}",
        list(sealed_to)
    )]
    NotARecipient {
        /// The key that was tried.
        key: Fingerprint,
        /// Those that would open it.
        sealed_to: Vec<Fingerprint>,
    },
    /// It was changed after it was sealed.
    #[error("the envelope was changed after it was sealed")]
    Changed,
    /// It is sealed, whole, and about something else.
    #[error("the envelope is labelled {found:?}, not {expected:?}")]
    LabelMismatch {
        /// What the caller asked for.
        expected: String,
        /// What the sender wrote.
        found: String,
    },
}

fn list(fingerprints: &[Fingerprint]) -> String {
    let names: Vec<_> = fingerprints.iter().map(ToString::to_string).collect();
    names.join(", ")
}
