//! The three spaces, and the folders and bundles they are made of.
//!
//! A lookup goes project, user, system; the first hit wins, and that a project
//! shadows what the system ships is intended. Nothing is read before it is asked
//! for, and a change on the disk is seen at the next call: what is kept for one is
//! kept with all that was looked at, which must be found the same.

mod access_log;
mod confined_dir;
mod directory;
mod embedded;
mod error;
mod root;
mod walk;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use confined_dir::{FileIdentity, LARGEST_FILE, RawFile};
pub use directory::Deviation;
pub(crate) use directory::{Directory, Filter, Links, Name, Scan};
pub use embedded::{EmbeddedBundle, EmbeddedFile};
pub use error::SpaceError;
pub use root::Root;
pub use walk::Entry;
pub(crate) use walk::{Observer, is_passed_by};

/// One of the three, from the least to the most specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// What ships with the binary, and bundles beside it. Read only.
    System,
    /// The person's own.
    User,
    /// The project's.
    Project,
}

impl Space {
    /// In the order in which they are looked through.
    pub const LOOKUP: [Self; 3] = [Self::Project, Self::User, Self::System];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
        }
    }

    /// An item may depend on items of its own precedence or a lower one.
    pub fn precedence(self) -> u8 {
        match self {
            Self::System => 1,
            Self::User => 2,
            Self::Project => 3,
        }
    }

    /// Whether items of this space may be written and signed.
    pub fn is_writable(self) -> bool {
        self != Self::System
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Space {
    type Err = UnknownSpace;

    fn from_str(text: &str) -> Result<Self, UnknownSpace> {
        Self::LOOKUP
            .into_iter()
            .find(|space| space.as_str() == text)
            .ok_or(UnknownSpace)
    }
}

/// A word that names no space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the spaces are project, user and system")]
pub struct UnknownSpace;

/// Where the spaces are. Cheap to make: each folder is opened once, nothing is listed.
#[derive(Debug)]
pub struct Spaces {
    roots: Vec<Root>,
    /// Where a space would be, and is none.
    missing: Vec<PathBuf>,
    /// Whether a later call can tell that it would find the same.
    is_noted: bool,
}

impl Spaces {
    /// The spaces of a project: `{project}/.ai`, `{user}/.ai`, and the bundles
    /// of the system space in the order of their precedence.
    ///
    /// A folder without `.ai` is a space without items. Where user and project
    /// are the same folder, it is the user's space, and the project has none.
    pub fn open(
        project: Option<&Path>,
        user: Option<&Path>,
        bundles: &[PathBuf],
        embedded: &'static EmbeddedBundle,
    ) -> Result<Self, SpaceError> {
        let mut roots = Vec::new();
        let mut missing = Vec::new();
        let mut root = |space, folder: &Path| {
            let root = Root::folder(space, folder)?;
            if root.is_none() {
                missing.push(folder.join(".ai"));
            }
            Ok::<_, SpaceError>(root)
        };
        let user = user
            .map(|folder| root(Space::User, folder))
            .transpose()?
            .flatten();
        let project = project
            .map(|folder| root(Space::Project, folder))
            .transpose()?
            .flatten();
        let is_user = |project: &Root| user.as_ref().is_some_and(|user| user.is_same(project));
        roots.extend(project.filter(|project| !is_user(project)));
        roots.extend(user);
        let mut replaced = false;
        for folder in bundles {
            let root = Root::folder(Space::System, folder)?
                .ok_or_else(|| SpaceError::NoBundle(folder.clone()))?;
            replaced |= root.bundle() == Some(embedded.name);
            roots.push(root);
        }
        if !replaced {
            roots.push(Root::embedded(embedded));
        }
        Ok(Self {
            roots,
            missing,
            is_noted: false,
        })
    }

    /// Notes what is looked at from now on, for a later call. What was looked at to
    /// open bundles was not, so with bundles there is nothing to be noted.
    pub(crate) fn start_recording(&self) {
        let folders = |root: &&Root| root.as_dir().is_some();
        let is_bundle = |root: &Root| root.space() == Space::System;
        if !self.roots().filter(folders).any(is_bundle) {
            self.roots().for_each(Root::start_recording);
        }
    }

    /// Notes no more. With all noted, [`is_unchanged`](Self::is_unchanged) can tell.
    pub(crate) fn finish_recording(&mut self) {
        let unnoted = self.roots().filter(|root| !root.finish_recording());
        self.is_noted = unnoted.count() == 0;
    }

    /// Whether all that was noted is as it was found.
    pub(crate) fn is_unchanged(&self) -> bool {
        let is_missing = |path: &PathBuf| {
            let found = path.symlink_metadata();
            found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        self.is_noted && self.missing.iter().all(is_missing) && self.roots().all(Root::is_unchanged)
    }

    /// All roots, in the order in which they are looked through.
    pub fn roots(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter()
    }

    /// The roots of one space: one folder, or the bundles of the system.
    pub fn roots_in(&self, space: Space) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(move |root| root.space() == space)
    }
}
