//! Secrets, sealed to the user's own key, one file each.
//!
//! `{space}/.ai/vault/NAME.json` is a [`lillux::envelope`]; what opens it is the X25519
//! key in `{user}/.ai/config/keys/vault/`, made when the first secret is kept. Secrets
//! of a project are sealed to the same key: the project holds them, its user reads them.
//!
//! The envelope's label says the name and the space, and is authentic, so that a file
//! under another name or in the other space is noticed. Anyone who has the public
//! key can seal, though: an envelope does not say who did.
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
mod key;
mod name;

use std::path::{Path, PathBuf};

use lillux::envelope::{Envelope, OpeningKey, Secret, seal};
use lillux::keys::Fingerprint;

use crate::space::Space;

pub use error::VaultError;
pub use name::{SecretName, SecretNameError};

use dir::SecretDir;

/// The largest secret: keys, tokens and certificates are far below.
pub const LARGEST_SECRET: usize = 1 << 20;

/// The two spaces that hold secrets, the more specific first.
const SPACES: [Space; 2] = [Space::Project, Space::User];

/// The secrets of a user, in the user space and in a project.
#[derive(Debug, Clone)]
pub struct Vault {
    user: PathBuf,
    project: Option<PathBuf>,
}

/// What is known of a secret without opening it, as its envelope claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    /// What it is called.
    pub name: SecretName,
    /// Where it is kept.
    pub space: Space,
    /// Its file.
    pub path: PathBuf,
    /// When it was sealed, UTC to the second.
    pub created: String,
    /// The keys that open it.
    pub recipients: Vec<Fingerprint>,
}

/// A secret that was opened.
#[derive(Debug)]
pub struct OpenedSecret {
    /// The secret.
    pub secret: Secret,
    /// Where it was.
    pub sealed: SecretInfo,
}

impl Vault {
    /// The vault of a user, by the folder that holds their `.ai/`, and of a project.
    pub fn new(user: &Path, project: Option<&Path>) -> Self {
        Self {
            user: user.to_owned(),
            project: project.map(Path::to_owned),
        }
    }

    /// Seals a secret under a name, in place of the one it had.
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
        // The folder first: a key is made only when the secret can be kept.
        let dir = SecretDir::create(self, space)?;
        let key = key::read_or_make(&self.user)?;
        let recipient = key.public().clone();
        let envelope = seal(secret, &[recipient], &label(space, name))?;
        dir.write(name, &envelope)?;
        Ok(describe(space, name, dir.path_to(name), &envelope))
    }

    /// The key that all secrets are sealed to, for what is kept elsewhere; none where there is
    /// none and none is to be made.
    pub fn key(&self, make: bool) -> Result<Option<OpeningKey>, VaultError> {
        if make {
            return key::read_or_make(&self.user).map(Some);
        }
        key::find(&self.user)
    }

    /// Opens a secret: of the space given, or of the project and else the user.
    pub fn get(&self, space: Option<Space>, name: &SecretName) -> Result<OpenedSecret, VaultError> {
        for space in SPACES.into_iter().filter(|s| space.is_none_or(|o| o == *s)) {
            let Some(dir) = SecretDir::open(self, space)? else {
                continue;
            };
            let Some(envelope) = dir.read(name)? else {
                continue;
            };
            let path = dir.path_to(name);
            let key = key::read(&self.user, name)?;
            let secret = envelope
                .open(&key, Some(&label(space, name)))
                .map_err(|source| VaultError::Open {
                    path: path.clone(),
                    source,
                })?;
            let sealed = describe(space, name, path, &envelope);
            return Ok(OpenedSecret { secret, sealed });
        }
        Err(VaultError::NoSecret {
            name: name.clone(),
            space,
        })
    }

    /// All secrets, the project's before the user's, each ordered by name. One
    /// whose file is not as it should be comes as an error in its place.
    pub fn list(
        &self,
        space: Option<Space>,
    ) -> Result<Vec<Result<SecretInfo, VaultError>>, VaultError> {
        let mut all = Vec::new();
        for space in SPACES.into_iter().filter(|s| space.is_none_or(|o| o == *s)) {
            let Some(dir) = SecretDir::open(self, space)? else {
                continue;
            };
            for name in dir.names() {
                all.push(
                    name.and_then(|name| describe_file(&dir, space, &name))
                        .transpose(),
                );
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// Removes a secret and says where it was.
    pub fn remove(&self, space: Option<Space>, name: &SecretName) -> Result<PathBuf, VaultError> {
        let mut found = Vec::new();
        for space in SPACES.into_iter().filter(|s| space.is_none_or(|o| o == *s)) {
            if let Some(dir) = SecretDir::open(self, space)?
                && dir.has(name)?
            {
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

    fn folder(&self, space: Space) -> Option<&Path> {
        match space {
            Space::User => Some(&self.user),
            Space::Project => self.project.as_deref(),
            Space::System => None,
        }
    }
}

/// What the envelope of a secret is labelled.
fn label(space: Space, name: &SecretName) -> String {
    format!("rye vault {space} {name}")
}

fn describe_file(
    dir: &SecretDir,
    space: Space,
    name: &SecretName,
) -> Result<Option<SecretInfo>, VaultError> {
    // Gone since the folder was listed.
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
    let shown = envelope.inspect();
    SecretInfo {
        name: name.clone(),
        space,
        path,
        created: shown.created,
        recipients: shown.recipients,
    }
}

#[cfg(test)]
mod tests;
