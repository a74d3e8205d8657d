//! The three spaces (project, user, system), and access to their files.
//!
//! A lookup searches project, user, system; the first match wins, so a project can shadow a
//! system item. Files are read only on demand, and each call sees changes on disk.

mod confined_dir;
mod directory;
mod embedded;
mod error;
mod root;
mod walk;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use confined_dir::FileClock;
pub use confined_dir::{FileIdentity, LARGEST_FILE, RawFile};
pub use directory::Deviation;
pub(crate) use directory::{DirEntry, Directory, Filter, Links, Scan};
pub use embedded::{EmbeddedBundle, EmbeddedFile};
pub use error::SpaceError;
pub use root::Root;
pub use walk::Entry;
pub(crate) use walk::{Observer, is_skipped};

/// A space. The order is from the least to the most specific. An item may depend only on items of
/// the same or a less specific space.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownSpace, parse_err_fn = unknown_space)]
pub enum Space {
    /// The embedded bundle and further bundles. Read-only.
    System,
    /// The user's `.ai/`.
    User,
    /// The project's `.ai/`.
    Project,
}

impl Space {
    /// The lookup order.
    pub const LOOKUP: [Self; 3] = [Self::Project, Self::User, Self::System];

    /// The name in references, options and JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

fn unknown_space(_: &str) -> UnknownSpace {
    UnknownSpace
}

/// The text is not the name of a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the spaces are project, user and system")]
pub struct UnknownSpace;

/// The open spaces of a call. Opening is cheap: each directory is opened once and not listed.
#[derive(Debug)]
pub struct Spaces {
    roots: Vec<Root>,
}

impl Spaces {
    /// Opens `{project}/.ai`, `{user}/.ai`, and the bundles of the system space in order of
    /// precedence.
    ///
    /// A directory without `.ai` is an empty space. If user and project are the same directory, it
    /// is the user space, and there is no project space.
    pub fn open(
        project: Option<&Path>,
        user: Option<&Path>,
        bundles: &[PathBuf],
        embedded: &'static EmbeddedBundle,
    ) -> Result<Self, SpaceError> {
        let root = |space, dir: Option<&Path>| match dir {
            Some(dir) => Root::open(space, dir),
            None => Ok(None),
        };
        let mut roots = Vec::new();
        let user = root(Space::User, user)?;
        let project = root(Space::Project, project)?;
        let is_user = |project: &Root| user.as_ref().is_some_and(|user| user.is_same(project));
        roots.extend(project.filter(|project| !is_user(project)));
        roots.extend(user);
        let mut replaced = false;
        for dir in bundles {
            let root =
                Root::open(Space::System, dir)?.ok_or_else(|| SpaceError::NoBundle(dir.clone()))?;
            replaced |= root.bundle() == Some(embedded.name);
            roots.push(root);
        }
        if !replaced {
            roots.push(Root::embedded(embedded));
        }
        Ok(Self { roots })
    }

    /// All roots in lookup order.
    pub fn roots(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter()
    }

    /// The root of the project or of the user.
    pub(crate) fn into_root(self, space: Space) -> Option<Root> {
        self.roots.into_iter().find(|root| root.space() == space)
    }

    /// The roots of one space: a directory, or the bundles of the system space.
    pub fn roots_in(&self, space: Space) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(move |root| root.space() == space)
    }
}
