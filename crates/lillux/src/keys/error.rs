//! Errors of keys and key files. No message contains bytes of a key.

use std::fmt;
use std::path::PathBuf;

use super::random::RandomnessError;
use crate::durable::WriteError;
use crate::error::PathError;
use crate::text::shell_word;

/// The key algorithms of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// For signatures.
    Ed25519,
    /// For envelopes.
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

/// Error of generating, reading or writing a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file does not exist.
    #[error("there is no key file {}", .0.display())]
    Missing(PathBuf),
    /// A file cannot be read or written, or a directory cannot be created.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path is a directory.
    #[error("{} is a directory, not a key file", .0.display())]
    IsDirectory(PathBuf),
    /// The path is a pipe, a socket or a device.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file is larger than any key file.
    #[error("{} is not a key file: it is larger than 64 KiB", .0.display())]
    TooLarge(PathBuf),
    /// Group or others have access to a private key.
    #[error("private key {} is accessible to group or others (mode {mode:04o})", path.display())]
    InsecureFile {
        /// The private key file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// Group or others could replace the files in the directory.
    #[error("directory {} is writable by group or others (mode {mode:04o})", path.display())]
    InsecureDirectory {
        /// The directory of the key pair.
        path: PathBuf,
        /// Permission bits of the directory.
        mode: u32,
    },
    /// The file exists and [`IfExists::Fail`](crate::durable::IfExists::Fail) was requested.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The content of the file is not the expected key.
    #[error("cannot use the key {}: {source}", path.display())]
    Unusable {
        /// The key file.
        path: PathBuf,
        /// The problem with its content.
        source: KeyTextError,
    },
    /// A key could not be generated.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
}

impl KeyError {
    /// Whether the cause is a permission that is missing or too wide.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Path(error) => error.is_permission(),
            Self::InsecureFile { .. } | Self::InsecureDirectory { .. } => true,
            _ => false,
        }
    }

    /// A command that fixes the problem, if there is one.
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

/// Error of parsing a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// There is no PEM block.
    #[error("not PEM: there is no line `-----BEGIN …-----`")]
    NotPem,
    /// A PEM block has no matching END line.
    #[error("truncated or malformed PEM: there is no matching line `-----END …-----`")]
    NoEnd,
    /// There is more than one PEM block.
    #[error("expected one PEM block, found {0}")]
    SeveralBlocks(usize),
    /// The body of the PEM block is not base64.
    #[error("truncated or malformed base64 in the PEM block")]
    Base64,
    /// The DER in the PEM block is not a key.
    #[error("truncated or malformed key structure in the PEM block")]
    Structure,
    /// The private key needs a passphrase.
    #[error("the private key is encrypted; only unencrypted keys are supported")]
    Encrypted,
    /// A public key where a private key is needed.
    #[error("expected a private key, found a public key")]
    PublicForPrivate,
    /// A private key where a public key is needed.
    #[error("expected a public key, found a private key")]
    PrivateForPublic,
    /// The PEM block is not a PKCS#8 or `SubjectPublicKeyInfo` key.
    #[error("expected `BEGIN PRIVATE KEY` or `BEGIN PUBLIC KEY`, found {0}")]
    OtherBlock(&'static str),
    /// The key is for another algorithm.
    #[error("expected a key for {needed}, found one for {found}")]
    OtherAlgorithm {
        /// Name of the key's algorithm, if known.
        found: &'static str,
        /// The required algorithm.
        needed: Algorithm,
    },
    /// The file contains a public key that does not match its private key.
    #[error("the public key in the file does not match the private key")]
    Mismatch,
    /// The bytes are not a canonical point of the curve, or a point of low order.
    #[error("the public key is invalid: it is not a point of its curve, or a weak one")]
    UnsafePoint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_can_be_pasted_into_a_shell() {
        for (path, word) in [
            ("keys/private_key.pem", "keys/private_key.pem"),
            ("my keys/it's", r"'my keys/it'\''s'"),
            ("-rf", "./-rf"),
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
