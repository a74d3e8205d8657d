//! The user's own key, and what is signed with it: whom they trust and no longer trust.

use std::fs;
use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists, WriteError};
use lillux::keys::{Fingerprint, KeyError, KeyPairFiles, PublicKey, SigningKey};
use lillux::{PathContext as _, PathError};

use crate::comment::CommentStyle;
use crate::signature::{self, Binding, REVOCATION, TRUST};
use crate::trust::{REVOKED, Revocation, TRUSTED, TrustFile};

/// The keys in the user's space.
#[derive(Debug, Clone)]
pub struct UserKeys {
    ai: PathBuf,
}

/// A key of the user's that cannot be had, or a file about a key that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserKeyError {
    /// There is no key yet.
    #[error("no signing key at {}", .0.display())]
    Missing(PathBuf),
    /// There is one, and it was not to be replaced.
    #[error("a signing key already exists: {}", .0.display())]
    Exists(PathBuf),
    /// The key cannot be used.
    #[error(transparent)]
    Key(KeyError),
    /// A file cannot be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A file about a key cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The file named holds no public key.
    #[error("{} is neither a public key nor a trust file: {why}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl UserKeyError {
    /// The command that helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Path(_) | Self::Write(_) | Self::Key(KeyError::Path(_)) => None,
            Self::Missing(_) => Some("rye keys generate".to_owned()),
            // Only the public half is there.
            Self::Exists(path) if path.ends_with("public_key.pem") => {
                Some("put its private half back, or: rye keys generate --force".to_owned())
            }
            Self::Exists(_) => Some("rye keys show".to_owned()),
            Self::Key(error) => error
                .hint()
                .or_else(|| Some("put a good copy back, or: rye keys generate --force".to_owned())),
            Self::NoKey { .. } => Some("rye keys show # run by the key's owner".to_owned()),
        }
    }
}

impl UserKeys {
    /// In the space of the user whose folder this is.
    pub fn new(user: &Path) -> Self {
        Self {
            ai: user.join(".ai"),
        }
    }

    /// The files of the pair.
    pub fn pair_files(&self) -> KeyPairFiles {
        KeyPairFiles::in_dir(&self.folder())
    }

    /// Reads the signing key.
    pub fn load_signing_key(&self) -> Result<SigningKey, UserKeyError> {
        SigningKey::read_pair(&self.pair_files()).map_err(|error| match error {
            KeyError::Missing(path) => UserKeyError::Missing(path),
            other => UserKeyError::Key(other),
        })
    }

    /// Makes a pair, and the file that trusts it.
    pub fn generate(&self, owner: &str, existing: IfExists) -> Result<SigningKey, UserKeyError> {
        let key = SigningKey::generate().map_err(|e| UserKeyError::Key(e.into()))?;
        // Trusted before it is there to be used: a crash in between leaves a
        // trusted key that nobody has.
        self.trust_own(&key, owner)?;
        let written = key.write_pair(&self.folder(), existing);
        if let Err(error) = written {
            let _ = fs::remove_file(self.trust_path(key.public().fingerprint()));
            return Err(match error {
                KeyError::Exists(path) => UserKeyError::Exists(path),
                other => UserKeyError::Key(other),
            });
        }
        Ok(key)
    }

    /// Writes the self-signed file that trusts the user's own key.
    pub fn trust_own(&self, key: &SigningKey, owner: &str) -> Result<PathBuf, UserKeyError> {
        let file = TrustFile {
            key: key.public().clone(),
            owner: Some(owner.to_owned()),
            attestation: None,
        };
        self.trust(&file, key)
    }

    /// Writes the file that trusts a key, signed with the user's.
    pub fn trust(&self, file: &TrustFile, signer: &SigningKey) -> Result<PathBuf, UserKeyError> {
        let relative = trust_path(file.key.fingerprint());
        self.write_signed(&Binding::new(TRUST, relative), &file.to_text(), signer)
    }

    /// Writes the file that revokes a key, signed with the user's.
    pub fn revoke(
        &self,
        fingerprint: Fingerprint,
        reason: Option<&str>,
        key: Option<&PublicKey>,
        signer: &SigningKey,
    ) -> Result<PathBuf, UserKeyError> {
        let relative = format!("{REVOKED}/{fingerprint}.toml");
        let since = lillux::time::now_rfc3339();
        let text = Revocation::text(fingerprint, &since, reason, key);
        self.write_signed(&Binding::new(REVOCATION, relative), &text, signer)
    }

    /// Where the file is that trusts a key.
    pub fn trust_path(&self, fingerprint: Fingerprint) -> PathBuf {
        self.ai.join(trust_path(fingerprint))
    }

    /// Signs a text and writes it where its binding says that it is.
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

    fn folder(&self) -> PathBuf {
        self.ai.join("config/keys/signing")
    }
}

/// The directories of a user that no tool, client or agent may use: their keys, whom they
/// trust, and their secrets.
pub fn private_directories(user: &Path) -> [PathBuf; 2] {
    ["config/keys", "vault"].map(|name| user.join(".ai").join(name))
}

/// Reads a public key from a PEM file or a trust file.
pub fn read_key_file(path: &Path) -> Result<TrustFile, UserKeyError> {
    const LARGEST: u64 = 64 << 10;
    let about = fs::metadata(path).at("read the metadata of", path)?;
    let no_key = |why: &str| UserKeyError::NoKey {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    if !about.is_file() || about.len() > LARGEST {
        return Err(no_key("it is not a small regular file"));
    }
    let bytes = fs::read(path).at("read", path)?;
    // Words may stand before a PEM block, as `rye keys show` writes them.
    let mut lines = bytes.split(|&b| b == b'\n');
    let first = lines.find(|line| line.starts_with(b"-----BEGIN") || line.starts_with(b"["));
    if first.is_some_and(|line| line.starts_with(b"-")) {
        let key = PublicKey::from_pem(&bytes).map_err(|e| no_key(&e.to_string()))?;
        return Ok(TrustFile {
            key,
            owner: None,
            attestation: None,
        });
    }
    TrustFile::parse(&bytes).map_err(|why| no_key(&why))
}

fn trust_path(fingerprint: Fingerprint) -> String {
    format!("{TRUSTED}/{fingerprint}.toml")
}
