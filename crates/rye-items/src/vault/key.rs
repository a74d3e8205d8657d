//! The key pair that encrypts all secrets of a user.

use std::path::{Path, PathBuf};

use lillux::envelope::OpeningKey;
use lillux::keys::{IfExists, KeyError, KeyPairFiles};

use super::error::VaultError;
use super::name::SecretName;

fn key_dir(user: &Path) -> PathBuf {
    user.join(".ai/config/keys/vault")
}

/// Loads the key, or generates one.
///
/// Encryption needs the private key too: with only a public key, a secret could never be
/// decrypted.
pub(super) fn load_or_generate(user: &Path) -> Result<OpeningKey, VaultError> {
    let dir = key_dir(user);
    let files = KeyPairFiles::in_dir(&dir);
    match OpeningKey::read_pair(&files) {
        Err(KeyError::Missing(_)) => {}
        outcome => return Ok(outcome?),
    }
    let key = OpeningKey::generate().map_err(KeyError::from)?;
    match key.write_pair(&dir, IfExists::Fail) {
        Ok(_) => Ok(key),
        // Another process generated the key meanwhile, or only the public key exists.
        Err(KeyError::Exists(_)) => match OpeningKey::read_pair(&files) {
            Err(KeyError::Missing(path)) => Err(VaultError::NoKey { path, name: None }),
            outcome => Ok(outcome?),
        },
        Err(error) => Err(error.into()),
    }
}

/// Loads the key; none if there is none.
pub(super) fn find(user: &Path) -> Result<Option<OpeningKey>, VaultError> {
    match OpeningKey::read_pair(&KeyPairFiles::in_dir(&key_dir(user))) {
        Err(KeyError::Missing(_)) => Ok(None),
        outcome => Ok(Some(outcome?)),
    }
}

/// Loads the key that decrypts a secret.
pub(super) fn load(user: &Path, name: &SecretName) -> Result<OpeningKey, VaultError> {
    match OpeningKey::read_pair(&KeyPairFiles::in_dir(&key_dir(user))) {
        Err(KeyError::Missing(path)) => Err(VaultError::NoKey {
            path,
            name: Some(name.clone()),
        }),
        outcome => Ok(outcome?),
    }
}
