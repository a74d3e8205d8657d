//! Secret bytes that are zeroed when dropped.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use super::MAX_PAYLOAD;
use crate::durable::{self, IfExists, WriteError};

/// Initial buffer size for reading a secret.
const FIRST: usize = 64 * 1024;

/// A secret. It is zeroed when dropped and accessible only by [`expose`](Self::expose).
///
/// It has no `Display`, serialisation or comparison, so that it does not leak into messages,
/// files or timing by accident.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Wraps bytes without copying them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads a secret to the end of `reader`. Fails with `FileTooLarge` beyond
    /// [`MAX_PAYLOAD`].
    ///
    /// The buffer does not grow in place, which would leave unzeroed copies, but is replaced by
    /// a larger one and zeroed.
    pub fn from_reader(mut reader: impl Read) -> io::Result<Self> {
        let mut bytes = Zeroizing::new(vec![0; FIRST]);
        let mut filled = 0;
        loop {
            if filled == bytes.len() {
                let mut larger = Zeroizing::new(vec![0; 2 * filled]);
                larger[..filled].copy_from_slice(&bytes);
                bytes = larger;
            }
            match reader.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if filled > MAX_PAYLOAD {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        bytes.truncate(filled);
        Ok(Self(bytes))
    }

    /// The secret bytes. The name makes every access visible in the code.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Writes the secret to a file with mode 0600, atomically.
    pub fn write_file(&self, path: &Path) -> Result<(), WriteError> {
        durable::write(path, &self.0, 0o600, IfExists::Replace)
    }
}

impl From<Zeroizing<Vec<u8>>> for Secret {
    fn from(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_is_read_to_its_end_or_the_limit() {
        for length in [0, 1, FIRST, FIRST + 1, 5 * FIRST, MAX_PAYLOAD] {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            assert_eq!(
                Secret::from_reader(bytes.as_slice()).unwrap().expose(),
                bytes
            );
        }
        let endless = Secret::from_reader(io::repeat(7)).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }
}
