//! The text format of an envelope: one line of JSON with exactly one encoding.

use base64ct::{Base64UrlUnpadded, Encoding};
use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny};
use serde_json::Value;

use super::cipher::{TAG, WrappedKey};
use super::error::{Damage, ParseEnvelopeError};
use super::{MAX_LABEL, MAX_PAYLOAD, MAX_RECIPIENTS};
use crate::keys::Fingerprint;

/// Format version.
pub(super) const VERSION: u64 = 1;

/// Name of the cipher suite.
pub(super) const SUITE: &str = "hpke-base-x25519-hkdf-sha256-chacha20poly1305";

/// Maximum size of an envelope: the largest payload in base64 and 1 MiB for the rest.
pub const MAX_DOCUMENT: usize = MAX_PAYLOAD / 3 * 4 + 1024 * 1024;

/// The fields of an envelope, without version and suite, which are constants.
pub(super) struct Document {
    pub(super) created: String,
    pub(super) label: String,
    pub(super) recipients: Vec<Recipient>,
    pub(super) commitment: [u8; 32],
    pub(super) ciphertext: Vec<u8>,
}

pub(super) struct Recipient {
    pub(super) fingerprint: Fingerprint,
    pub(super) wrapped_key: WrappedKey,
}

impl Document {
    /// The text of the envelope, with its final newline.
    pub(super) fn text(&self) -> String {
        self.text_with(&base64(&self.ciphertext))
    }

    /// The associated data of the payload: the text with an empty ciphertext. Any change to it,
    /// including the recipients, makes opening fail.
    pub(super) fn associated(&self) -> String {
        self.text_with("")
    }

    fn text_with(&self, ciphertext: &str) -> String {
        let recipients: Vec<_> = self.recipients.iter().map(Recipient::text).collect();
        format!(
            "{{\"envelope\":{VERSION},\"suite\":\"{SUITE}\",\"created\":\"{}\",\"label\":{},\"recipients\":[{}],\
             \"commitment\":\"{}\",\"ciphertext\":\"{ciphertext}\"}}\n",
            self.created,
            Value::from(self.label.as_str()),
            recipients.join(","),
            base64(&self.commitment),
        )
    }

    /// Parses a text and checks that it is the canonical encoding.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ParseEnvelopeError> {
        if bytes.len() > MAX_DOCUMENT {
            return Err(ParseEnvelopeError::TooLarge);
        }
        check_version(bytes)?;
        let fields: Fields = serde_json::from_slice(bytes).map_err(|_| Damage::Fields)?;
        let document = Self::from(fields);
        document.check()?;
        let written = document.text();
        if bytes == written.as_bytes() {
            Ok(document)
        } else {
            let offset = first_difference(bytes, written.as_bytes());
            Err(ParseEnvelopeError::NotCanonical(offset))
        }
    }

    /// Checks the same rules as sealing.
    fn check(&self) -> Result<(), Damage> {
        let time: Result<Timestamp, _> = self.created.parse();
        if !time.is_ok_and(|time| format!("{time:.0}") == self.created) {
            return Err(Damage::Created);
        }
        if !is_label(&self.label) {
            return Err(Damage::Label);
        }
        let mut names: Vec<_> = self.recipients.iter().map(|r| r.fingerprint).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() != self.recipients.len() || !(1..=MAX_RECIPIENTS).contains(&names.len()) {
            return Err(Damage::Recipients);
        }
        if !(TAG..=MAX_PAYLOAD + TAG).contains(&self.ciphertext.len()) {
            return Err(Damage::Ciphertext);
        }
        Ok(())
    }
}

impl Recipient {
    fn text(&self) -> String {
        format!(
            "{{\"fingerprint\":\"{}\",\"encapsulated\":\"{}\",\"wrapped_key\":\"{}\"}}",
            self.fingerprint,
            base64(&self.wrapped_key.encapsulated),
            base64(&self.wrapped_key.key),
        )
    }
}

/// Whether a label is short enough and has no control characters, which could manipulate a
/// reader's terminal.
pub(super) fn is_label(label: &str) -> bool {
    label.len() <= MAX_LABEL && !label.chars().any(char::is_control)
}

/// Checks the version before anything else, so that another version is reported as such.
fn check_version(bytes: &[u8]) -> Result<(), ParseEnvelopeError> {
    #[derive(serde::Deserialize)]
    struct Version {
        envelope: Option<Value>,
        suite: Option<Value>,
    }
    let version: Version = serde_json::from_slice(bytes).map_err(|e| match e.classify() {
        serde_json::error::Category::Data => ParseEnvelopeError::NoVersion,
        _ => ParseEnvelopeError::NotJson {
            line: e.line(),
            column: e.column(),
        },
    })?;
    match version.envelope.as_ref().and_then(Value::as_u64) {
        None => return Err(ParseEnvelopeError::NoVersion),
        Some(VERSION) => {}
        Some(other) => return Err(ParseEnvelopeError::UnknownVersion(other)),
    }
    match version.suite.as_ref().and_then(Value::as_str) {
        Some(SUITE) => Ok(()),
        Some(_) => Err(ParseEnvelopeError::UnknownSuite),
        None => Err(Damage::Fields.into()),
    }
}

impl From<Damage> for ParseEnvelopeError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

/// The parsed fields, before they are checked.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(rename = "envelope")]
    _version: IgnoredAny,
    #[serde(rename = "suite")]
    _suite: IgnoredAny,
    created: String,
    label: String,
    recipients: Vec<RecipientFields>,
    #[serde(deserialize_with = "fixed")]
    commitment: [u8; 32],
    #[serde(deserialize_with = "any_length")]
    ciphertext: Vec<u8>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipientFields {
    fingerprint: Fingerprint,
    #[serde(deserialize_with = "fixed")]
    encapsulated: [u8; 32],
    #[serde(deserialize_with = "fixed")]
    wrapped_key: [u8; 48],
}

impl From<Fields> for Document {
    fn from(fields: Fields) -> Self {
        let recipients = fields.recipients.into_iter().map(|recipient| Recipient {
            fingerprint: recipient.fingerprint,
            wrapped_key: WrappedKey {
                encapsulated: recipient.encapsulated,
                key: recipient.wrapped_key,
            },
        });
        Self {
            created: fields.created,
            label: fields.label,
            recipients: recipients.collect(),
            commitment: fields.commitment,
            ciphertext: fields.ciphertext,
        }
    }
}

fn any_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    // Borrowed, so that a string with escapes, which base64 never needs, is rejected.
    let text = <&str>::deserialize(deserializer)?;
    Base64UrlUnpadded::decode_vec(text).map_err(D::Error::custom)
}

fn fixed<'de, D: Deserializer<'de>, const N: usize>(deserializer: D) -> Result<[u8; N], D::Error> {
    let bytes = any_length(deserializer)?;
    bytes.try_into().map_err(|_| D::Error::custom("length"))
}

fn first_difference(one: &[u8], other: &[u8]) -> usize {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b);
    same.count()
}

fn base64(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}
