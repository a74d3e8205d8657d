//! SHA-256 as a type: a [`struct@Hash`] is 32 bytes and prints as 64 lower-case hex
//! characters.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// Buffer size for hashing streams.
const CHUNK: usize = 128 * 1024;

/// The SHA-256 of some bytes.
///
/// ```
/// use lillux::Hash;
///
/// let hash = Hash::digest(b"hello");
/// assert_eq!(
///     hash.to_string(),
///     "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
/// );
/// assert_eq!(hash.to_string().parse(), Ok(hash));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Hashes bytes in memory.
    pub fn digest(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads `reader` to its end in constant memory and returns the hash and the length.
    pub fn digest_reader(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; CHUNK];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(n) => hasher.update(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Wraps 32 bytes that are already a SHA-256.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex characters; signatures cover this form.
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0
            .iter()
            .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
            .map(char::from)
            .collect()
    }
}

/// An incremental SHA-256 that also counts the bytes.
#[derive(Debug, Clone, Default)]
pub struct Hasher {
    sha: Sha256,
    length: u64,
}

impl Hasher {
    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// Number of bytes hashed so far.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether no bytes were hashed so far.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the hash and the number of bytes hashed.
    pub fn finish(self) -> (Hash, u64) {
        (Hash(self.sha.finalize().into()), self.length)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// Error of parsing a hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseHashError {
    /// The text does not have 64 characters.
    #[error("a hash has 64 hex characters, this has {0}")]
    Length(usize),
    /// A character is not one of `0-9a-f`.
    #[error("{found:?} at position {position} is not a lower-case hex digit")]
    NotHex {
        /// Index in characters, from 0.
        position: usize,
        /// The invalid character.
        found: char,
    },
}

impl FromStr for Hash {
    type Err = ParseHashError;

    /// Parses 64 lower-case hex characters. Upper case is rejected, so a hash has one
    /// spelling.
    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        if let Some((position, found)) = text
            .chars()
            .enumerate()
            .find(|(_, c)| !matches!(c, '0'..='9' | 'a'..='f'))
        {
            return Err(ParseHashError::NotHex { position, found });
        }
        if text.len() != 64 {
            return Err(ParseHashError::Length(text.len()));
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => digit - b'0',
            _ => digit - b'a' + 10,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = value(pair[0]) << 4 | value(pair[1]);
        }
        Ok(Self(bytes))
    }
}

crate::serde_as_text!(Hash);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_and_memory_have_the_same_hash() {
        let bytes: Vec<u8> = (0..=250).cycle().take(CHUNK * 3 + 7).collect();
        let (hash, length) = Hash::digest_reader(bytes.as_slice()).unwrap();
        assert_eq!(hash, Hash::digest(&bytes));
        assert_eq!(length, bytes.len() as u64);
    }

    #[test]
    fn parse_errors_name_the_problem() {
        let good = Hash::digest(b"").to_hex();
        for (text, message) in [
            ("", "a hash has 64 hex characters, this has 0"),
            (&good[..63], "a hash has 64 hex characters, this has 63"),
            (
                &good.to_uppercase(),
                "'E' at position 0 is not a lower-case hex digit",
            ),
            (
                "../../etc/passwd",
                "'.' at position 0 is not a lower-case hex digit",
            ),
            ("é", "'é' at position 0 is not a lower-case hex digit"),
        ] {
            assert_eq!(text.parse::<Hash>().unwrap_err().to_string(), message);
        }
    }
}
