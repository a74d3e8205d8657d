//! Signatures as text: base64url.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding};

/// How many characters 64 bytes take, without padding.
const CHARACTERS: usize = 86;

/// An Ed25519 signature. Says nothing about whom or what it fits.
///
/// Written as 86 characters of base64url; read with or without the two `=` of
/// padding, and in no other spelling.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

impl Signature {
    /// From its raw bytes, R then S.
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The raw bytes, R then S.
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&Base64UrlUnpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

/// A text that is not a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSignatureError {
    /// A character is not of the base64url alphabet.
    #[error("{found:?} at position {position} is not of the base64url alphabet (A-Z a-z 0-9 - _)")]
    Alphabet {
        /// Counted in characters, from 0.
        position: usize,
        /// The character.
        found: char,
    },
    /// The length is off.
    #[error("a signature has 86 base64url characters (88 with padding), this has {0}")]
    Length(usize),
    /// The last character carries bits that belong to no byte: the same bytes
    /// are written differently.
    #[error("the last character is not the one that base64url ends these bytes with")]
    TrailingBits,
}

impl FromStr for Signature {
    type Err = ParseSignatureError;

    fn from_str(text: &str) -> Result<Self, ParseSignatureError> {
        let bare = text.strip_suffix("==").unwrap_or(text);
        if let Some((position, found)) = bare
            .chars()
            .enumerate()
            .find(|(_, c)| !matches!(c, 'A'..='Z' | 'a'..='z' | '0'..='9' | '-' | '_'))
        {
            return Err(ParseSignatureError::Alphabet { position, found });
        }
        if bare.len() != CHARACTERS {
            return Err(ParseSignatureError::Length(text.len()));
        }
        let mut bytes = [0; 64];
        Base64UrlUnpadded::decode(bare, &mut bytes)
            .map_err(|_| ParseSignatureError::TrailingBits)?;
        Ok(Self(bytes))
    }
}

crate::text::serde_as_text!(Signature);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_reads_with_and_without_padding_and_writes_without() {
        let signature = Signature::from_bytes([0xc7; 64]);
        let text = signature.to_string();
        assert_eq!(text.len(), CHARACTERS);
        assert_eq!(text.parse(), Ok(signature));
        assert_eq!(format!("{text}==").parse(), Ok(signature));
    }

    #[test]
    fn every_other_spelling_is_refused_and_says_why() {
        let good = Signature::from_bytes([0xff; 64]).to_string();
        let stem = &good[..CHARACTERS - 1];
        for (text, message) in [
            (
                String::new(),
                "a signature has 86 base64url characters (88 with padding), this has 0",
            ),
            (
                stem.to_owned(),
                "a signature has 86 base64url characters (88 with padding), this has 85",
            ),
            (
                format!("{good}A"),
                "a signature has 86 base64url characters (88 with padding), this has 87",
            ),
            (
                format!("{good}="),
                "'=' at position 86 is not of the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                format!("{good}===="),
                "'=' at position 86 is not of the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                good.replacen('_', "/", 1),
                "'/' at position 0 is not of the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                format!("{good}\n"),
                "'\\n' at position 86 is not of the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                format!("{stem}_"),
                "the last character is not the one that base64url ends these bytes with",
            ),
        ] {
            assert_eq!(
                text.parse::<Signature>().unwrap_err().to_string(),
                message,
                "{text:?}"
            );
        }
    }
}
