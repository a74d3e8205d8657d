//! One root of items: an `.ai` directory on disk, or a bundle embedded in the binary.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::Space;
use super::confined_dir::{ConfinedDir, FileIdentity, RawFile};
use super::embedded::EmbeddedBundle;
use super::error::SpaceError;
use super::walk::{self, Entry, Observer};

/// The file that names a bundle, relative to `.ai/`.
const BUNDLE: &str = "bundle.yaml";

/// A root of items. All paths are relative to its `.ai/`.
#[derive(Debug)]
pub struct Root {
    space: Space,
    bundle: Option<String>,
    tree: Tree,
}

#[derive(Debug)]
enum Tree {
    Dir(ConfinedDir),
    Embedded(&'static EmbeddedBundle),
}

impl Root {
    /// Opens `{dir}/.ai`; none if it does not exist.
    pub(super) fn open(space: Space, dir: &Path) -> Result<Option<Self>, SpaceError> {
        let dir = match space {
            // The author of a project must not be able to link another directory as its space.
            Space::Project => ConfinedDir::open_inside(dir, ".ai")?,
            Space::User | Space::System => ConfinedDir::open(&dir.join(".ai"))?,
        };
        let Some(dir) = dir else {
            return Ok(None);
        };
        let bundle = match space {
            Space::System => Some(bundle_name(&dir)?),
            _ => None,
        };
        Ok(Some(Self {
            space,
            bundle,
            tree: Tree::Dir(dir),
        }))
    }

    pub(super) fn embedded(embedded: &'static EmbeddedBundle) -> Self {
        Self {
            space: Space::System,
            bundle: Some(embedded.name.to_owned()),
            tree: Tree::Embedded(embedded),
        }
    }

    /// The space that this root belongs to.
    pub fn space(&self) -> Space {
        self.space
    }

    /// The bundle's name; only in the system space.
    pub fn bundle(&self) -> Option<&str> {
        self.bundle.as_deref()
    }

    /// The embedded bundle, if this root is one.
    pub fn as_embedded(&self) -> Option<&'static EmbeddedBundle> {
        match self.tree {
            Tree::Embedded(embedded) => Some(embedded),
            Tree::Dir(_) => None,
        }
    }

    /// The path of `.ai`, if this root is on disk.
    pub fn as_dir(&self) -> Option<&Path> {
        match &self.tree {
            Tree::Dir(dir) => Some(&dir.path),
            Tree::Embedded(_) => None,
        }
    }

    /// The open `.ai` directory, if this root is on disk.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.tree {
            Tree::Dir(dir) => Some(dir.fd.as_fd()),
            Tree::Embedded(_) => None,
        }
    }

    /// The path of a file to display: on disk, or `embedded:NAME/…`.
    pub fn path_to(&self, relative: &str) -> PathBuf {
        match &self.tree {
            Tree::Dir(dir) => dir.join(relative),
            Tree::Embedded(embedded) => format!("embedded:{}/.ai/{relative}", embedded.name).into(),
        }
    }

    /// Whether there is a regular file, and for one on the disk its state.
    pub fn stat(&self, relative: &str) -> Result<Option<Option<FileIdentity>>, SpaceError> {
        match &self.tree {
            Tree::Dir(dir) => Ok(dir.stat(relative)?.map(Some)),
            Tree::Embedded(embedded) => Ok(embedded.get(relative).map(|_| None)),
        }
    }

    /// The regular files whose path is the stem plus one of the extensions.
    pub fn files_with_stem<'e>(
        &self,
        stem: &str,
        extensions: impl Iterator<Item = &'e str>,
    ) -> Result<Vec<String>, SpaceError> {
        let mut found = Vec::new();
        if let (Tree::Dir(dir), Some((parent, _))) = (&self.tree, stem.rsplit_once('/'))
            && dir.open_below(parent, OFlags::PATH)?.is_none()
        {
            return Ok(found);
        }
        for extension in extensions {
            let path = format!("{stem}{extension}");
            if self.stat(&path)?.is_some() {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Reads a whole file; none if it does not exist.
    pub fn read(&self, relative: &str) -> Result<Option<RawFile>, SpaceError> {
        match &self.tree {
            Tree::Dir(dir) => dir.read(relative),
            Tree::Embedded(embedded) => Ok(embedded.get(relative).map(|file| RawFile {
                bytes: file.bytes.to_vec(),
                identity: None,
            })),
        }
    }

    /// The path of a file with all links resolved, for writing to it.
    pub fn real_path(&self, relative: &str) -> Result<Option<PathBuf>, SpaceError> {
        match &self.tree {
            Tree::Dir(dir) => dir.real_path(relative),
            Tree::Embedded(_) => Ok(None),
        }
    }

    /// Opens a subdirectory on disk, confined to itself; none if it does not exist.
    pub(super) fn subdir(&self, relative: &str) -> Result<Option<ConfinedDir>, SpaceError> {
        match &self.tree {
            Tree::Dir(dir) => dir.subdir(relative),
            Tree::Embedded(_) => Ok(None),
        }
    }

    /// All regular files below a directory, sorted by path. Skips hidden files and the directories
    /// of package managers and caches. Unreadable paths are returned as errors.
    pub fn walk(&self, below: &str) -> Vec<Result<Entry, SpaceError>> {
        self.observed_walk(below, &mut ())
    }

    /// Like [`walk`](Self::walk), with callbacks for a file watcher.
    pub(crate) fn observed_walk(
        &self,
        below: &str,
        observer: &mut dyn Observer,
    ) -> Vec<Result<Entry, SpaceError>> {
        match &self.tree {
            Tree::Dir(dir) => walk::walk_dir(dir, below, observer),
            Tree::Embedded(embedded) => embedded
                .with_prefix(&format!("{below}/"))
                .iter()
                .map(|file| Ok(Entry::embedded(file.path)))
                .collect(),
        }
    }

    /// Whether both roots are the same directory, even by different paths.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let identity = |root: &Self| match &root.tree {
            Tree::Dir(dir) => dir.identity(),
            Tree::Embedded(_) => None,
        };
        identity(self).is_some_and(|mine| Some(mine) == identity(other))
    }
}

/// The `name:` in the bundle file, or the name of the bundle's directory. The name need not be
/// verified: it only identifies the bundle.
fn bundle_name(dir: &ConfinedDir) -> Result<String, SpaceError> {
    let file = dir.read(BUNDLE)?.map(|file| file.bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&file);
    let named = text.lines().find_map(|line| line.strip_prefix("name:"));
    let named = named
        .map(|name| name.trim().trim_matches(['"', '\'']))
        .filter(|n| !n.is_empty());
    let above = dir.path.parent().and_then(Path::file_name);
    let name = named
        .map(Into::into)
        .or(above.map(std::ffi::OsStr::to_string_lossy));
    Ok(name.map_or_else(|| "bundle".to_owned(), std::borrow::Cow::into_owned))
}
