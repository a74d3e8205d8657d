//! Ed25519 signatures as base64url text.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding};

/// Length of 64 bytes in base64url without padding.
const CHARACTERS: usize = 86;

/// An Ed25519 signature, not verified.
///
/// Its text has 86 characters of base64url. Parsing also accepts the padding `==`, but no other
/// spelling.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

impl Signature {
    /// Wraps the 64 bytes of a signature, R then S.
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The 64 bytes, R then S.
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

/// Error of parsing a [`Signature`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSignatureError {
    /// A character is not in the base64url alphabet.
    #[error("{found:?} at position {position} is not in the base64url alphabet (A-Z a-z 0-9 - _)")]
    Alphabet {
        /// Index in characters, from 0.
        position: usize,
        /// The invalid character.
        found: char,
    },
    /// The text does not have the length of a signature.
    #[error("a signature has 86 base64url characters (88 with padding), this has {0}")]
    Length(usize),
    /// The unused bits of the last character are not zero, so the encoding is not canonical.
    #[error("the last character is not canonical base64url")]
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

crate::serde_as_text!(Signature);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_optional_and_not_written() {
        let signature = Signature::from_bytes([0xc7; 64]);
        let text = signature.to_string();
        assert_eq!(text.len(), CHARACTERS);
        assert_eq!(text.parse(), Ok(signature));
        assert_eq!(format!("{text}==").parse(), Ok(signature));
    }

    #[test]
    fn other_spellings_are_rejected() {
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
                "'=' at position 86 is not in the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                format!("{good}===="),
                "'=' at position 86 is not in the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                good.replacen('_', "/", 1),
                "'/' at position 0 is not in the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                format!("{good}\n"),
                "'\\n' at position 86 is not in the base64url alphabet (A-Z a-z 0-9 - _)",
            ),
            (
                format!("{stem}_"),
                "the last character is not canonical base64url",
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
