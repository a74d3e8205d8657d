//! The directory that contains the secrets of a space.

use std::fs;
use std::path::PathBuf;

use lillux::PathContext as _;
use lillux::durable::{self, IfExists};
use lillux::envelope::Envelope;

use super::Vault;
use super::error::VaultError;
use super::name::SecretName;
use crate::space::{EmbeddedBundle, Root, Space, SpaceError, Spaces};

/// The name of the directory in `.ai/`.
const DIR: &str = "vault";
const EXTENSION: &str = ".json";

/// The secrets of one space.
pub(super) struct SecretDir {
    root: Root,
}

impl SecretDir {
    /// Opens the secrets of a space; none if it has no `.ai/`.
    pub(super) fn open(vault: &Vault, space: Space) -> Result<Option<Self>, VaultError> {
        let (user, project) = (&vault.user, vault.project.as_deref());
        let spaces = Spaces::open(project, Some(user), &[], &EmbeddedBundle::EMPTY)?;
        let root = spaces.into_root(space).filter(|_| space != Space::System);
        Ok(root.map(|root| Self { root }))
    }

    /// Opens the secrets of a space, and creates the directory if it is missing.
    pub(super) fn create(vault: &Vault, space: Space) -> Result<Self, VaultError> {
        let dir = match Self::open(vault, space)? {
            Some(dir) => dir,
            // Only the user space is created implicitly; a project needs `rye init`.
            None if space != Space::User => return Err(VaultError::NoSpace(space)),
            None => {
                durable::create_dir(&vault.user.join(".ai"), 0o755)?;
                Self::open(vault, space)?.ok_or(VaultError::NoSpace(space))?
            }
        };
        if dir.root.real_path(DIR)?.is_none() {
            durable::create_dir(&dir.root.path_to(DIR), 0o700)?;
        }
        dir.resolve()?;
        Ok(dir)
    }

    /// The path of a secret's file, to display.
    pub(super) fn path_to(&self, name: &SecretName) -> PathBuf {
        self.root.path_to(&relative(name))
    }

    pub(super) fn has(&self, name: &SecretName) -> Result<bool, VaultError> {
        Ok(self.root.stat(&relative(name))?.is_some())
    }

    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Envelope>, VaultError> {
        let Some(file) = self.root.read(&relative(name))? else {
            return Ok(None);
        };
        match Envelope::parse(&file.bytes) {
            Ok(envelope) => Ok(Some(envelope)),
            Err(source) => Err(VaultError::Envelope {
                path: self.path_to(name),
                source,
            }),
        }
    }

    /// All names, sorted. A file with another name is an error.
    pub(super) fn names(&self) -> Vec<Result<SecretName, VaultError>> {
        let names = self.root.walk(DIR).into_iter().map(|entry| {
            let path = entry?.path;
            let name = path.strip_prefix(DIR).and_then(|path| {
                path.strip_prefix('/')?
                    .strip_suffix(EXTENSION)?
                    .parse()
                    .ok()
            });
            name.ok_or_else(|| VaultError::StrayFile(self.root.path_to(&path)))
        });
        names.collect()
    }

    /// Writes a secret's file atomically, with mode 0600.
    pub(super) fn write(&self, name: &SecretName, envelope: &Envelope) -> Result<(), VaultError> {
        let path = self.resolve()?.join(format!("{name}{EXTENSION}"));
        let bytes = envelope.to_bytes();
        Ok(durable::write(&path, &bytes, 0o600, IfExists::Replace)?)
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<PathBuf, VaultError> {
        let dir = self.resolve()?;
        let path = dir.join(format!("{name}{EXTENSION}"));
        fs::remove_file(&path).at("remove", &path)?;
        durable::sync_dir(&dir)?;
        Ok(path)
    }

    /// The path of the directory with all links resolved. No link may leave the space.
    fn resolve(&self) -> Result<PathBuf, VaultError> {
        let path = self.root.real_path(DIR)?.filter(|path| path.is_dir());
        Ok(path.ok_or_else(|| SpaceError::NotADirectory(self.root.path_to(DIR)))?)
    }
}

fn relative(name: &SecretName) -> String {
    format!("{DIR}/{name}{EXTENSION}")
}
