//! The one key that all secrets of a user are sealed to.

use std::path::{Path, PathBuf};

use lillux::envelope::OpeningKey;
use lillux::keys::{IfExists, KeyError, KeyPairFiles};

use super::error::VaultError;
use super::name::SecretName;

fn folder(user: &Path) -> PathBuf {
    user.join(".ai/config/keys/vault")
}

/// The key, made if there is none.
///
/// The private half is read also to seal: a public key whose private half is lost
/// would take secrets that nobody opens.
pub(super) fn read_or_make(user: &Path) -> Result<OpeningKey, VaultError> {
    let folder = folder(user);
    let files = KeyPairFiles::in_dir(&folder);
    match OpeningKey::read_pair(&files) {
        Err(KeyError::Missing(_)) => {}
        outcome => return Ok(outcome?),
    }
    let key = OpeningKey::generate().map_err(KeyError::from)?;
    match key.write_pair(&folder, IfExists::Fail) {
        Ok(_) => Ok(key),
        // Somebody else's first secret came in between, or a public half is left alone.
        Err(KeyError::Exists(_)) => match OpeningKey::read_pair(&files) {
            Err(KeyError::Missing(path)) => Err(VaultError::NoKey { path, name: None }),
            outcome => Ok(outcome?),
        },
        Err(error) => Err(error.into()),
    }
}

/// The key, if there is one.
pub(super) fn find(user: &Path) -> Result<Option<OpeningKey>, VaultError> {
    match OpeningKey::read_pair(&KeyPairFiles::in_dir(&folder(user))) {
        Err(KeyError::Missing(_)) => Ok(None),
        outcome => Ok(Some(outcome?)),
    }
}

/// The key that opens a secret.
pub(super) fn read(user: &Path, name: &SecretName) -> Result<OpeningKey, VaultError> {
    match OpeningKey::read_pair(&KeyPairFiles::in_dir(&folder(user))) {
        Err(KeyError::Missing(path)) => Err(VaultError::NoKey {
            path,
            name: Some(name.clone()),
        }),
        outcome => Ok(outcome?),
    }
}
