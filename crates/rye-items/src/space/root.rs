//! One tree of items: a folder on the disk, or one inside the binary.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::Space;
use super::confined_dir::{ConfinedDir, FileIdentity, RawFile};
use super::embedded::EmbeddedBundle;
use super::error::SpaceError;
use super::walk::{self, Entry, Observer};

/// The file that gives a bundle its name, relative to `.ai/`.
const BUNDLE: &str = "bundle.yaml";

/// A tree of items. All paths are relative to its `.ai/`.
#[derive(Debug)]
pub struct Root {
    space: Space,
    bundle: Option<String>,
    tree: Tree,
}

#[derive(Debug)]
enum Tree {
    Folder(ConfinedDir),
    Embedded(&'static EmbeddedBundle),
}

impl Root {
    /// The space in `{folder}/.ai`; none where there is no such folder.
    pub(super) fn folder(space: Space, folder: &Path) -> Result<Option<Self>, SpaceError> {
        let folder = match space {
            // Whoever made a project must not be able to pass off another folder as its space.
            Space::Project => ConfinedDir::open_inside(folder, ".ai")?,
            Space::User | Space::System => ConfinedDir::open(&folder.join(".ai"))?,
        };
        let Some(folder) = folder else {
            return Ok(None);
        };
        let bundle = match space {
            Space::System => Some(bundle_name(&folder)?),
            _ => None,
        };
        Ok(Some(Self {
            space,
            bundle,
            tree: Tree::Folder(folder),
        }))
    }

    pub(super) fn embedded(embedded: &'static EmbeddedBundle) -> Self {
        Self {
            space: Space::System,
            bundle: Some(embedded.name.to_owned()),
            tree: Tree::Embedded(embedded),
        }
    }

    /// The space it belongs to.
    pub fn space(&self) -> Space {
        self.space
    }

    /// The name of the bundle, in the system space.
    pub fn bundle(&self) -> Option<&str> {
        self.bundle.as_deref()
    }

    /// The embedded tree, if it is one.
    pub fn as_embedded(&self) -> Option<&'static EmbeddedBundle> {
        match self.tree {
            Tree::Embedded(embedded) => Some(embedded),
            Tree::Folder(_) => None,
        }
    }

    /// The `.ai` folder on the disk, if there is one.
    pub fn as_dir(&self) -> Option<&Path> {
        match &self.tree {
            Tree::Folder(folder) => Some(&folder.path),
            Tree::Embedded(_) => None,
        }
    }

    /// The open `.ai` folder, for what is on the disk.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.tree {
            Tree::Folder(folder) => Some(folder.fd.as_fd()),
            Tree::Embedded(_) => None,
        }
    }

    /// Where a file is, for people: a path, or `embedded:NAME/…` inside the binary.
    pub fn path_to(&self, relative: &str) -> PathBuf {
        match &self.tree {
            Tree::Folder(folder) => folder.join(relative),
            Tree::Embedded(embedded) => format!("embedded:{}/.ai/{relative}", embedded.name).into(),
        }
    }

    /// Whether there is a regular file, and for one on the disk its state.
    pub fn stat(&self, relative: &str) -> Result<Option<Option<FileIdentity>>, SpaceError> {
        match &self.tree {
            Tree::Folder(folder) => Ok(folder.stat(relative)?.map(Some)),
            Tree::Embedded(embedded) => Ok(embedded.get(relative).map(|_| None)),
        }
    }

    /// The state of a file whose content cannot change from now on without a new state.
    pub(crate) fn settled_state(&self, relative: &str) -> Option<FileIdentity> {
        match &self.tree {
            Tree::Folder(folder) => folder.settled_state(relative),
            Tree::Embedded(_) => None,
        }
    }

    /// The regular files whose paths are this stem and one of the extensions.
    pub fn files_with_stem<'e>(
        &self,
        stem: &str,
        extensions: impl Iterator<Item = &'e str>,
    ) -> Result<Vec<String>, SpaceError> {
        let extensions: Vec<_> = extensions.collect();
        let path = |extension: &str| format!("{stem}{extension}");
        let folder = match &self.tree {
            Tree::Embedded(embedded) => {
                let endings = embedded.with_prefix(stem).iter();
                let endings = endings.filter_map(|file| file.path.strip_prefix(stem));
                let known = endings.filter(|ending| extensions.contains(ending));
                return Ok(known.map(path).collect());
            }
            Tree::Folder(folder) => folder,
        };
        let (parent, name) = stem.rsplit_once('/').unwrap_or((".", stem));
        let mut found = Vec::new();
        // One look at a folder is less than many at what is not in it.
        let Some(names) = folder.few_names(parent, name)? else {
            for extension in extensions {
                if self.stat(&path(extension))?.is_some() {
                    found.push(path(extension));
                }
            }
            return Ok(found);
        };
        for (there, kind) in names {
            let Some(extension) = there.strip_prefix(name) else {
                continue;
            };
            let is_known = extensions.contains(&extension);
            // A link may lead to a file, and out of the space.
            if is_known && (kind == FileType::RegularFile || self.stat(&path(extension))?.is_some())
            {
                found.push(path(extension));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Reads a file, once and whole; none where there is nothing.
    pub fn read(&self, relative: &str) -> Result<Option<RawFile>, SpaceError> {
        match &self.tree {
            Tree::Folder(folder) => folder.read(relative),
            Tree::Embedded(embedded) => Ok(embedded.get(relative).map(|file| RawFile {
                bytes: file.bytes.to_vec(),
                identity: None,
            })),
        }
    }

    /// The file's own path after all links, for who must write to it.
    pub fn real_path(&self, relative: &str) -> Result<Option<PathBuf>, SpaceError> {
        match &self.tree {
            Tree::Folder(folder) => folder.real_path(relative),
            Tree::Embedded(_) => Ok(None),
        }
    }

    /// A directory of the tree on the disk, confined to itself; none where there is none.
    pub(super) fn subdir(&self, relative: &str) -> Result<Option<ConfinedDir>, SpaceError> {
        match &self.tree {
            Tree::Folder(folder) => folder.subdir(relative),
            Tree::Embedded(_) => Ok(None),
        }
    }

    /// All regular files below a folder, ordered by path. Hidden ones and those of
    /// package managers and caches are left out. What could not be looked at
    /// comes as an error in its place.
    pub fn walk(&self, below: &str) -> Vec<Result<Entry, SpaceError>> {
        self.observed_walk(below, &mut ())
    }

    /// The same, with somebody who hears of each folder before it is listed.
    pub(crate) fn observed_walk(
        &self,
        below: &str,
        observer: &mut dyn Observer,
    ) -> Vec<Result<Entry, SpaceError>> {
        match &self.tree {
            Tree::Folder(folder) => {
                folder.looks.give_up();
                walk::folder(folder, below, observer)
            }
            Tree::Embedded(embedded) => embedded
                .with_prefix(&format!("{below}/"))
                .iter()
                .map(|file| Ok(Entry::embedded(file.path)))
                .collect(),
        }
    }

    /// Notes what is looked at from now on.
    pub(super) fn start_recording(&self) {
        if let Tree::Folder(folder) = &self.tree {
            folder.looks.begin();
        }
    }

    /// Notes no more; tells whether all was.
    pub(super) fn finish_recording(&self) -> bool {
        match &self.tree {
            Tree::Folder(folder) => folder.looks.end(),
            Tree::Embedded(_) => true,
        }
    }

    /// Whether all that was noted is as it was found.
    pub(super) fn is_unchanged(&self) -> bool {
        match &self.tree {
            Tree::Folder(folder) => {
                folder.forget_what_is_missing();
                folder.is_unchanged()
            }
            Tree::Embedded(_) => true,
        }
    }

    /// Whether both are the same folder, by whatever path.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let identity = |root: &Self| match &root.tree {
            Tree::Folder(folder) => folder.identity(),
            Tree::Embedded(_) => None,
        };
        identity(self).is_some_and(|mine| Some(mine) == identity(other))
    }
}

/// `name: …` of the bundle's file, or the name of its folder where it has none.
/// Only says which bundle this is: nothing in it is used without being verified.
fn bundle_name(folder: &ConfinedDir) -> Result<String, SpaceError> {
    let file = folder
        .read(BUNDLE)?
        .map(|file| file.bytes)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&file);
    let named = text.lines().find_map(|line| line.strip_prefix("name:"));
    let named = named
        .map(|name| name.trim().trim_matches(['"', '\'']))
        .filter(|n| !n.is_empty());
    let above = folder.path.parent().and_then(Path::file_name);
    let name = named
        .map(Into::into)
        .or(above.map(std::ffi::OsStr::to_string_lossy));
    Ok(name.map_or_else(|| "bundle".to_owned(), std::borrow::Cow::into_owned))
}
