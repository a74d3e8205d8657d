//! The folder of a space that its secrets are in.

use std::fs;
use std::path::{Path, PathBuf};

use lillux::PathContext as _;
use lillux::durable::{self, IfExists};
use lillux::envelope::Envelope;

use super::Vault;
use super::error::VaultError;
use super::name::SecretName;
use crate::space::{EmbeddedBundle, Root, Space, SpaceError, Spaces};

/// Relative to `.ai/`.
const FOLDER: &str = "vault";
const EXTENSION: &str = ".json";

/// The secrets of one space.
pub(super) struct SecretDir {
    spaces: Spaces,
    space: Space,
}

impl SecretDir {
    /// The secrets of a space; none where it has no `.ai/`.
    pub(super) fn open(vault: &Vault, space: Space) -> Result<Option<Self>, VaultError> {
        let spaces = open(vault)?;
        let there = spaces.roots_in(space).next().is_some();
        Ok(there.then_some(Self { spaces, space }))
    }

    /// The same, with its folder made where there is none.
    pub(super) fn create(vault: &Vault, space: Space) -> Result<Self, VaultError> {
        let folder = vault.folder(space).ok_or(VaultError::NoSpace(space))?;
        let dir = match Self::open(vault, space)? {
            Some(dir) => dir,
            // A project has a space only where somebody has made it one.
            None if space != Space::User => return Err(VaultError::NoSpace(space)),
            None => {
                durable::create_dir(&folder.join(".ai"), 0o755)?;
                Self::open(vault, space)?.ok_or(VaultError::NoSpace(space))?
            }
        };
        if dir.root()?.real_path(FOLDER)?.is_none() {
            durable::create_dir(&dir.root()?.path_to(FOLDER), 0o700)?;
        }
        dir.folder()?;
        Ok(dir)
    }

    /// Where a secret is, for people.
    pub(super) fn path_to(&self, name: &SecretName) -> PathBuf {
        let relative = relative(name);
        self.root()
            .map_or_else(|_| PathBuf::from(&relative), |root| root.path_to(&relative))
    }

    pub(super) fn has(&self, name: &SecretName) -> Result<bool, VaultError> {
        Ok(self.root()?.stat(&relative(name))?.is_some())
    }

    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Envelope>, VaultError> {
        let Some(file) = self.root()?.read(&relative(name))? else {
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

    /// All names, in their order.
    pub(super) fn names(&self) -> Vec<Result<SecretName, VaultError>> {
        let Ok(root) = self.root() else {
            return Vec::new();
        };
        let names = root.walk(FOLDER).into_iter().map(|entry| {
            let path = entry?.path;
            let name = path.strip_prefix(FOLDER).and_then(|path| {
                path.strip_prefix('/')?
                    .strip_suffix(EXTENSION)?
                    .parse()
                    .ok()
            });
            name.ok_or_else(|| VaultError::StrayFile(root.path_to(&path)))
        });
        names.collect()
    }

    /// Writes a secret's file, whole or not at all, for its owner alone.
    pub(super) fn write(&self, name: &SecretName, envelope: &Envelope) -> Result<(), VaultError> {
        let path = self.folder()?.join(format!("{name}{EXTENSION}"));
        let bytes = envelope.to_bytes();
        Ok(durable::write(&path, &bytes, 0o600, IfExists::Replace)?)
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<PathBuf, VaultError> {
        let folder = self.folder()?;
        let path = folder.join(format!("{name}{EXTENSION}"));
        fs::remove_file(&path).at("remove", &path)?;
        durable::sync_dir(&folder)?;
        Ok(path)
    }

    /// The folder itself, after all links, none of which leads out of the space.
    fn folder(&self) -> Result<PathBuf, VaultError> {
        let root = self.root()?;
        let path = root.real_path(FOLDER)?.filter(|path| path.is_dir());
        Ok(path.ok_or_else(|| SpaceError::NotADirectory(root.path_to(FOLDER)))?)
    }

    fn root(&self) -> Result<&Root, VaultError> {
        let root = self.spaces.roots_in(self.space).next();
        root.ok_or(VaultError::NoSpace(self.space))
    }
}

fn open(vault: &Vault) -> Result<Spaces, VaultError> {
    let project = vault.folder(Space::Project);
    Ok(Spaces::open(
        project,
        vault.folder(Space::User).map(Path::new),
        &[],
        &EmbeddedBundle::EMPTY,
    )?)
}

fn relative(name: &SecretName) -> String {
    format!("{FOLDER}/{name}{EXTENSION}")
}
