//! The user's signing key, and the trust and revocation files that it signs.

use std::fs;
use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists, WriteError};
use lillux::keys::{Fingerprint, KeyError, KeyPairFiles, PublicKey, SigningKey};
use lillux::{PathContext as _, PathError};

use crate::comment::CommentStyle;
use crate::signature::{self, Binding, REVOCATION, TRUST};
use crate::trust::{Revocation, TrustFile, revocation_path, trust_path};

/// The key directory in the user's space.
#[derive(Debug, Clone)]
pub struct UserKeys {
    ai: PathBuf,
}

/// The user's key cannot be loaded, or a trust or revocation file cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserKeyError {
    /// The user has no key yet.
    #[error("no signing key at {}", .0.display())]
    Missing(PathBuf),
    /// The user already has a key.
    #[error("a signing key already exists: {}", .0.display())]
    Exists(PathBuf),
    /// The key file is invalid or has the wrong permissions.
    #[error(transparent)]
    Key(KeyError),
    /// A file cannot be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The file contains no public key.
    #[error("{} is neither a public key nor a trust file: {reason}", path.display())]
    NoKey {
        /// The file that was read.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

impl UserKeyError {
    /// A command that helps to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Path(_) | Self::Write(_) | Self::Key(KeyError::Path(_)) => None,
            Self::Missing(_) => Some("rye keys generate".to_owned()),
            // Only the public key exists.
            Self::Exists(path) if path.ends_with("public_key.pem") => {
                Some("rye keys generate --force # or restore the private key".to_owned())
            }
            Self::Exists(_) => Some("rye keys show".to_owned()),
            Self::Key(error) => error
                .hint()
                .or_else(|| Some("rye keys generate --force # or restore the key".to_owned())),
            Self::NoKey { .. } => Some("rye keys show # run by the key's owner".to_owned()),
        }
    }
}

impl UserKeys {
    /// The keys of a user, given by the directory that contains their `.ai/`.
    pub fn new(user: &Path) -> Self {
        Self {
            ai: user.join(".ai"),
        }
    }

    /// The paths of the private and the public key.
    pub fn pair_files(&self) -> KeyPairFiles {
        KeyPairFiles::in_dir(&self.signing_dir())
    }

    /// Loads the signing key.
    pub fn load_signing_key(&self) -> Result<SigningKey, UserKeyError> {
        SigningKey::read_pair(&self.pair_files()).map_err(|error| match error {
            KeyError::Missing(path) => UserKeyError::Missing(path),
            other => UserKeyError::Key(other),
        })
    }

    /// Generates a key pair and the trust file for it.
    pub fn generate(&self, owner: &str, if_exists: IfExists) -> Result<SigningKey, UserKeyError> {
        let key = SigningKey::generate().map_err(|e| UserKeyError::Key(e.into()))?;
        // The trust file comes first: a crash in between leaves only a trusted key whose private
        // half does not exist.
        self.trust_own(&key, owner)?;
        let written = key.write_pair(&self.signing_dir(), if_exists);
        if let Err(error) = written {
            let _ = fs::remove_file(self.trust_path(key.public().fingerprint()));
            return Err(match error {
                KeyError::Exists(path) => UserKeyError::Exists(path),
                other => UserKeyError::Key(other),
            });
        }
        Ok(key)
    }

    /// Writes the self-signed trust file for the user's own key.
    pub fn trust_own(&self, key: &SigningKey, owner: &str) -> Result<PathBuf, UserKeyError> {
        let file = TrustFile {
            key: key.public().clone(),
            owner: Some(owner.to_owned()),
            attestation: None,
            decisions_only: false,
        };
        self.trust(&file, key)
    }

    /// Writes a trust file, signed with the user's key.
    pub fn trust(&self, file: &TrustFile, signer: &SigningKey) -> Result<PathBuf, UserKeyError> {
        let relative = trust_path(file.key.fingerprint());
        self.write_signed(&Binding::new(TRUST, relative), &file.to_text(), signer)
    }

    /// Writes a revocation file, signed with the user's key.
    pub fn revoke(
        &self,
        fingerprint: Fingerprint,
        reason: Option<&str>,
        key: Option<&PublicKey>,
        signer: &SigningKey,
    ) -> Result<PathBuf, UserKeyError> {
        let relative = revocation_path(fingerprint);
        let since = lillux::time::now_rfc3339();
        let text = Revocation::to_text(fingerprint, &since, reason, key);
        self.write_signed(&Binding::new(REVOCATION, relative), &text, signer)
    }

    /// The path of the trust file for a key.
    pub fn trust_path(&self, fingerprint: Fingerprint) -> PathBuf {
        self.ai.join(trust_path(fingerprint))
    }

    /// Signs a text and writes it to the path in its binding.
    pub(crate) fn write_signed(
        &self,
        binding: &Binding,
        text: &str,
        signer: &SigningKey,
    ) -> Result<PathBuf, UserKeyError> {
        let path = self.ai.join(binding.path());
        let time = lillux::time::now_rfc3339();
        let (text, comment) = (text.as_bytes(), &CommentStyle::HASH);
        let signed =
            signature::sign(text, comment, binding, signer, &time, None).unwrap_or_default();
        durable::create_dir(path.parent().unwrap_or(&path), 0o700)?;
        durable::write(&path, &signed, 0o644, IfExists::Replace)?;
        Ok(path)
    }

    fn signing_dir(&self) -> PathBuf {
        self.ai.join("config/keys/signing")
    }
}

/// The user's directories that no tool, client or agent may access: the keys, the trust store and
/// the vault.
pub fn private_directories(user: &Path) -> [PathBuf; 2] {
    ["config/keys", "vault"].map(|name| user.join(".ai").join(name))
}

/// Reads a public key from a PEM file or a trust file. Text before the PEM block is skipped.
pub fn read_key_file(path: &Path) -> Result<TrustFile, UserKeyError> {
    const MAX_SIZE: u64 = 64 << 10;
    let metadata = fs::metadata(path).at("read the metadata of", path)?;
    let no_key = |reason: &str| UserKeyError::NoKey {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    if !metadata.is_file() || metadata.len() > MAX_SIZE {
        return Err(no_key("not a regular file of at most 64 KiB"));
    }
    let bytes = fs::read(path).at("read", path)?;
    // `rye keys show` writes text before the PEM block.
    let mut lines = bytes.split(|&b| b == b'\n');
    let first = lines.find(|line| line.starts_with(b"-----BEGIN") || line.starts_with(b"["));
    if first.is_some_and(|line| line.starts_with(b"-")) {
        let key = PublicKey::from_pem(&bytes).map_err(|e| no_key(&e.to_string()))?;
        return Ok(TrustFile {
            key,
            owner: None,
            attestation: None,
            decisions_only: false,
        });
    }
    TrustFile::parse(&bytes).map_err(|reason| no_key(&reason))
}
