//! The vault: secrets encrypted with the user's key, one file each.
//!
//! `{space}/.ai/vault/NAME.json` is a [`lillux::envelope`]. The X25519 key in
//! `{user}/.ai/config/keys/vault/` decrypts it; the key is generated with the first secret. Secrets
//! in a project are encrypted with the same key, so only this user can read them.
//!
//! The authenticated label of an envelope contains the name and the space, so a file that was
//! renamed or moved to the other space is detected. Anyone with the public key can encrypt,
//! though: an envelope does not prove who created it.
//!
//! ```
//! use lillux::envelope::Secret;
//! use rye_items::Space;
//! use rye_items::vault::{SecretName, Vault};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! let vault = Vault::new(home.path(), None);
//! let name: SecretName = "API_TOKEN".parse()?;
//! vault.set(Space::User, &name, &Secret::new(b"hunter2".to_vec()))?;
//! assert_eq!(vault.get(None, &name)?.secret.expose(), b"hunter2");
//! # Ok(())
//! # }
//! ```

mod dir;
mod error;
mod name;

use std::path::{Path, PathBuf};

use lillux::envelope::{Envelope, OpeningKey, Secret, seal};
use lillux::keys::{Fingerprint, IfExists, KeyError, KeyPairFiles};

use crate::space::Space;

pub use error::VaultError;
pub use name::{SecretName, SecretNameError};

use dir::SecretDir;

/// The maximum size of a secret in bytes.
pub const LARGEST_SECRET: usize = 1 << 20;

/// The spaces that can contain secrets, in lookup order.
const SPACES: [Space; 2] = [Space::Project, Space::User];

/// The secrets of a user in the user space and in a project.
#[derive(Debug, Clone)]
pub struct Vault {
    user: PathBuf,
    project: Option<PathBuf>,
}

/// Unauthenticated information about a secret, read without decrypting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    /// The name of the secret.
    pub name: SecretName,
    /// The space that contains it.
    pub space: Space,
    /// The path of its file.
    pub path: PathBuf,
    /// The time of encryption in UTC, to the second.
    pub created: String,
    /// The keys that can decrypt it.
    pub recipients: Vec<Fingerprint>,
}

/// A decrypted secret.
#[derive(Debug)]
pub struct OpenedSecret {
    /// The decrypted value.
    pub secret: Secret,
    /// Name, space and file of the secret.
    pub info: SecretInfo,
}

impl Vault {
    /// The vault of a user and a project, each given by the directory that contains its `.ai/`.
    pub fn new(user: &Path, project: Option<&Path>) -> Self {
        Self {
            user: user.to_owned(),
            project: project.map(Path::to_owned),
        }
    }

    /// Encrypts and stores a secret, replacing an existing one with this name.
    pub fn set(
        &self,
        space: Space,
        name: &SecretName,
        secret: &Secret,
    ) -> Result<SecretInfo, VaultError> {
        match secret.expose().len() {
            0 => return Err(VaultError::Empty(name.clone())),
            1..=LARGEST_SECRET => {}
            _ => return Err(VaultError::TooLarge(name.clone())),
        }
        // Creates the directory first: no key is generated if the secret cannot be stored.
        let dir = SecretDir::create(self, space)?;
        let key = self.key_or_generate()?;
        let recipient = key.public().clone();
        let envelope = seal(secret, &[recipient], &label(space, name))?;
        dir.write(name, &envelope)?;
        Ok(describe(space, name, dir.path_to(name), &envelope))
    }

    /// The key that encrypts all secrets, for secrets that are stored outside the vault. If there
    /// is none, `create` decides whether one is generated.
    pub fn key(&self, create: bool) -> Result<Option<OpeningKey>, VaultError> {
        if create {
            return self.key_or_generate().map(Some);
        }
        Ok(self.existing_key()?.ok())
    }

    /// The existing directories of one space, or of all, in lookup order.
    fn dirs(&self, space: Option<Space>) -> Result<Vec<(Space, SecretDir)>, VaultError> {
        let spaces = SPACES.into_iter();
        let spaces = spaces.filter(|it| space.is_none_or(|only| only == *it));
        let opened = spaces.map(|it| Ok(SecretDir::open(self, it)?.map(|dir| (it, dir))));
        opened.filter_map(Result::transpose).collect()
    }

    fn key_dir(&self) -> PathBuf {
        self.user.join(".ai/config/keys/vault")
    }

    /// Loads the key. The inner error is its expected path, if it does not exist.
    fn existing_key(&self) -> Result<Result<OpeningKey, PathBuf>, VaultError> {
        match OpeningKey::read_pair(&KeyPairFiles::in_dir(&self.key_dir())) {
            Err(KeyError::Missing(path)) => Ok(Err(path)),
            outcome => Ok(Ok(outcome?)),
        }
    }

    /// Loads the key, or generates one.
    ///
    /// Encryption needs the private key too: with only a public key, a secret could never be
    /// decrypted.
    fn key_or_generate(&self) -> Result<OpeningKey, VaultError> {
        if let Ok(key) = self.existing_key()? {
            return Ok(key);
        }
        let key = OpeningKey::generate().map_err(KeyError::from)?;
        match key.write_pair(&self.key_dir(), IfExists::Fail) {
            Ok(_) => Ok(key),
            // Another process generated the key meanwhile, or only the public key exists.
            Err(KeyError::Exists(_)) => self
                .existing_key()?
                .map_err(|path| VaultError::NoKey { path, name: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Decrypts a secret of the given space. Without a space, the project is searched before the
    /// user.
    pub fn get(&self, space: Option<Space>, name: &SecretName) -> Result<OpenedSecret, VaultError> {
        for (space, dir) in self.dirs(space)? {
            let Some(envelope) = dir.read(name)? else {
                continue;
            };
            let path = dir.path_to(name);
            let missing = |path| VaultError::NoKey {
                path,
                name: Some(name.clone()),
            };
            let key = self.existing_key()?.map_err(missing)?;
            let secret = envelope
                .open(&key, Some(&label(space, name)))
                .map_err(|source| VaultError::Open {
                    path: path.clone(),
                    source,
                })?;
            let info = describe(space, name, path, &envelope);
            return Ok(OpenedSecret { secret, info });
        }
        Err(VaultError::NoSecret {
            name: name.clone(),
            space,
        })
    }

    /// All secrets, the project's before the user's, sorted by name. A damaged file is returned as
    /// an error.
    pub fn list(
        &self,
        space: Option<Space>,
    ) -> Result<Vec<Result<SecretInfo, VaultError>>, VaultError> {
        let mut all = Vec::new();
        for (space, dir) in self.dirs(space)? {
            for name in dir.names() {
                all.push(
                    name.and_then(|name| describe_file(&dir, space, &name))
                        .transpose(),
                );
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// Removes a secret. Returns the path of its file.
    pub fn remove(&self, space: Option<Space>, name: &SecretName) -> Result<PathBuf, VaultError> {
        let mut found = Vec::new();
        for (_, dir) in self.dirs(space)? {
            if dir.has(name)? {
                found.push(dir);
            }
        }
        match found.as_slice() {
            [] => Err(VaultError::NoSecret {
                name: name.clone(),
                space,
            }),
            [dir] => dir.remove(name),
            _ => Err(VaultError::InBothSpaces(name.clone())),
        }
    }
}

/// The envelope label of a secret.
fn label(space: Space, name: &SecretName) -> String {
    format!("rye vault {space} {name}")
}

fn describe_file(
    dir: &SecretDir,
    space: Space,
    name: &SecretName,
) -> Result<Option<SecretInfo>, VaultError> {
    // Removed since the directory was listed.
    let Some(envelope) = dir.read(name)? else {
        return Ok(None);
    };
    let found = envelope.inspect().label;
    let expected = label(space, name);
    let path = dir.path_to(name);
    if found != expected {
        let source = lillux::envelope::OpenError::LabelMismatch { expected, found };
        return Err(VaultError::Open { path, source });
    }
    Ok(Some(describe(space, name, path, &envelope)))
}

fn describe(space: Space, name: &SecretName, path: PathBuf, envelope: &Envelope) -> SecretInfo {
    let header = envelope.inspect();
    SecretInfo {
        name: name.clone(),
        space,
        path,
        created: header.created,
        recipients: header.recipients,
    }
}

#[cfg(test)]
mod tests;
