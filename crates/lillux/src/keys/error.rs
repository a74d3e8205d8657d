//! What can be wrong with a key. No message holds anything of the key itself.

use std::fmt;
use std::path::PathBuf;

use super::random::RandomnessError;
use crate::durable::WriteError;
use crate::error::PathError;
use crate::text::shell_word;

/// The two kinds of key this crate works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Signatures.
    Ed25519,
    /// Sealed secrets.
    X25519,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ed25519 => "Ed25519",
            Self::X25519 => "X25519",
        })
    }
}

/// A key that could not be made, read or written, and where.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no such file.
    #[error("there is no key file {}", .0.display())]
    Missing(PathBuf),
    /// The file is there but cannot be read, or a folder cannot be made.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A folder, where a file is needed.
    #[error("{} is a folder, not a key file", .0.display())]
    IsDirectory(PathBuf),
    /// A pipe, a socket or a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Larger than any key.
    #[error("{} is larger than 64 KiB, which no key file is", .0.display())]
    TooLarge(PathBuf),
    /// Group or others have access to a private key.
    #[error("the private key {} is open to group or others (mode {mode:04o})", path.display())]
    InsecureFile {
        /// The private key's file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Group or others could replace what is in the folder.
    #[error("the folder {} can be written by group or others (mode {mode:04o})", path.display())]
    InsecureDirectory {
        /// The folder for the pair.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key of that name is there, and was not to be replaced.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The file was read, but is not the key it should be.
    #[error("cannot use the key {}: {source}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with its text.
        source: KeyTextError,
    },
    /// A new key could not be made.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}

impl KeyError {
    /// Whether this is about permissions, the operating system's or our own rule.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Path(error) => error.is_permission(),
            Self::InsecureFile { .. } | Self::InsecureDirectory { .. } => true,
            _ => false,
        }
    }

    /// The command that puts it right, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InsecureFile { path, .. } => Some(format!("chmod 600 {}", shell_word(path))),
            Self::InsecureDirectory { path, .. } => Some(format!("chmod 700 {}", shell_word(path))),
            Self::Unusable {
                path,
                source: KeyTextError::Encrypted,
            } => Some(format!(
                "openssl pkey -in {} -out decrypted.pem",
                shell_word(path)
            )),
            _ => None,
        }
    }
}

impl From<WriteError> for KeyError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Exists(path) => Self::Exists(path),
            WriteError::NotAFile(path) => Self::NotAFile(path),
            WriteError::Path(error) => Self::Path(error),
        }
    }
}

/// A text that is not the key it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// No PEM frame at all.
    #[error("it is not PEM: no line reads `-----BEGIN …-----`")]
    NotPem,
    /// The frame has a beginning and no fitting end.
    #[error("it is cut short or garbled: no line reads `-----END …-----` as it began")]
    NoEnd,
    /// More than one block; which one is meant would be a guess.
    #[error("it holds {0} PEM blocks, one is expected")]
    SeveralBlocks(usize),
    /// What is between the frame lines is not base64.
    #[error("the base64 between the PEM lines is cut short or garbled")]
    Base64,
    /// The base64 holds something else than a key's DER structure.
    #[error("the key structure inside the PEM block is cut short or garbled")]
    Structure,
    /// A private key that needs a passphrase.
    #[error("the private key is encrypted, only plain ones can be used")]
    Encrypted,
    /// The public half where the private one is needed.
    #[error("it is a public key, a private key is needed")]
    PublicForPrivate,
    /// The private half where the public one is needed.
    #[error("it is a private key, a public key is needed")]
    PrivateForPublic,
    /// A PEM block that is no PKCS#8 or `SubjectPublicKeyInfo` key.
    #[error("it is {0}, not a key as `BEGIN PRIVATE KEY` or `BEGIN PUBLIC KEY`")]
    OtherBlock(&'static str),
    /// A key for something else.
    #[error("it is a key for {found}, one for {needed} is needed")]
    OtherAlgorithm {
        /// The name of its algorithm, as far as known here.
        found: &'static str,
        /// What it should be.
        needed: Algorithm,
    },
    /// The file holds a public key that does not belong to its private key.
    #[error("the public key stored with the private key does not belong to it")]
    Mismatch,
    /// Bytes that are no public key, or one that protects nothing.
    #[error("the public key is not a safe point of its curve")]
    UnsafePoint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_can_be_pasted_into_a_shell() {
        for (path, word) in [
            ("keys/private_key.pem", "keys/private_key.pem"),
            ("my keys/it's", r"'my keys/it'\''s'"),
            ("-rf", "'./-rf'"),
            ("$(reboot)", "'$(reboot)'"),
        ] {
            let error = KeyError::InsecureFile {
                path: path.into(),
                mode: 0o644,
            };
            assert_eq!(error.hint().unwrap(), format!("chmod 600 {word}"));
        }
    }
}
