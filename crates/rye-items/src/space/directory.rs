//! Everything in a directory: what a process could load from it.
//!
//! Unlike [`walk`](super::walk), which lists the items of a space, this leaves nothing out:
//! hidden files, links, pipes and names that are not text are all reported. Links are never
//! followed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use lillux::file_times::updates_times;
use lillux::{Hash, PathContext as _};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use super::confined_dir::{ConfinedDir, FileIdentity};
use super::error::SpaceError;
use super::root::Root;
use crate::manifest::{MANIFEST, is_listable};
use crate::verify::CoarseInstant;

/// How deep directories may be nested.
const MAX_DEPTH: usize = 64;

/// Which names of a directory are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter<'a> {
    /// Whether directories in it are entered.
    pub(crate) recursive: bool,
    /// Names of directories, or links in their place, that are passed over everywhere.
    pub(crate) exclude_dirs: &'a [String],
    /// Whether manifests of directories further down are passed over, too.
    pub(crate) nested_manifests: bool,
    /// Where links may lead.
    pub(crate) links: Links<'a>,
}

/// Where the links of a directory may lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Links<'a> {
    /// Not out of the directory.
    Inside,
    /// Not out of the directory into the rest of this one.
    OutOf(&'a Path),
}

/// A file or link that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// A regular file and its state.
    File(FileIdentity),
    /// A link and its target as written.
    Link(String),
}

/// How a directory differs from what was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deviation {
    /// It is not listed.
    Added,
    /// It is listed and not there.
    Missing,
    /// Its content, or a link's target, is another one.
    Changed,
    /// It is neither a regular file, nor a directory, nor a link.
    NotRegular,
    /// A link leads out of the directory.
    LeavesDirectory,
    /// It cannot be read, or its name cannot be listed.
    Unreadable,
    /// It carries no valid signature line, and there is no manifest.
    Unsigned,
}

impl Deviation {
    /// A stable word for scripts.
    pub fn code(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::NotRegular => "not_regular",
            Self::LeavesDirectory => "leaves_directory",
            Self::Unreadable => "unreadable",
            Self::Unsigned => "unsigned",
        }
    }

    /// For messages: `added helper.py`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotRegular => "not a regular file:",
            Self::LeavesDirectory => "link out of the directory:",
            other => other.code(),
        }
    }
}

/// What was found in a directory.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) names: BTreeMap<String, Name>,
    /// What can never be listed.
    pub(crate) refused: Vec<(String, Deviation)>,
}

/// An open directory, confined to itself.
#[derive(Debug)]
pub(crate) struct Directory(ConfinedDir);

impl Directory {
    /// None where there is no directory.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, SpaceError> {
        Ok(ConfinedDir::open(path)?.map(Self))
    }

    /// A directory of a space that is a folder on the disk.
    pub(crate) fn of(root: &Root, relative: &str) -> Result<Option<Self>, SpaceError> {
        root.subdir(relative).map(|found| found.map(Self))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Where the directory really is, after all links.
    pub(crate) fn real_path(&self) -> Result<PathBuf, SpaceError> {
        let real = self.0.real_path(".")?;
        real.ok_or_else(|| SpaceError::ChangedWhileReading(self.0.path.clone()))
    }

    /// Reads a small file whole.
    pub(crate) fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, SpaceError> {
        Ok(self.0.read(relative)?.map(|raw| raw.bytes))
    }

    /// Lists everything that a filter admits.
    pub(crate) fn scan(&self, filter: &Filter<'_>) -> Result<Scan, SpaceError> {
        let mut scan = Scan::default();
        let mut pending = vec![(String::new(), 0)];
        while let Some((folder, depth)) = pending.pop() {
            if depth > MAX_DEPTH {
                return Err(SpaceError::TooDeep(self.0.join(&folder)));
            }
            let place = if folder.is_empty() { "." } else { &folder };
            let fd = match self.open_inside(place, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(fd) => fd,
                // Renamed or removed since its parent was listed.
                Err(_) if depth > 0 => {
                    scan.refused.push((folder, Deviation::Unreadable));
                    continue;
                }
                Err(error) => return Err(error).at("open the directory", self.path())?,
            };
            let mut dir = Dir::new(fd).at("read the directory", self.0.join(place))?;
            while let Some(entry) = dir.read() {
                let entry = entry.at("read the directory", self.0.join(place))?;
                let bytes = entry.file_name().to_bytes();
                if matches!(bytes, b"." | b"..") {
                    continue;
                }
                let name = entry.file_name().to_string_lossy();
                let path = match folder.as_str() {
                    "" => name.clone().into_owned(),
                    folder => format!("{folder}/{name}"),
                };
                let fd = dir.fd().at("read the directory", self.0.join(place))?;
                let Ok(stat) = statat(fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                    scan.refused.push((path, Deviation::Unreadable));
                    continue;
                };
                let kind = FileType::from_raw_mode(stat.st_mode);
                if filter.passes_over(&name, depth, kind) {
                    continue;
                }
                if entry.file_name().to_str().is_err() || !is_listable(&path) {
                    scan.refused.push((path, Deviation::Unreadable));
                    continue;
                }
                match kind {
                    FileType::RegularFile => {
                        scan.names
                            .insert(path, Name::File(FileIdentity::from_stat(&stat)));
                    }
                    FileType::Directory => pending.push((path, depth + 1)),
                    FileType::Symlink => {
                        let target = readlinkat(fd, entry.file_name(), Vec::new());
                        let target = target.ok().and_then(|target| target.into_string().ok());
                        match target {
                            Some(target) if is_listable(&target) => {
                                if self.may_lead(&path, &filter.links) {
                                    scan.names.insert(path, Name::Link(target));
                                } else {
                                    scan.refused.push((path, Deviation::LeavesDirectory));
                                }
                            }
                            _ => scan.refused.push((path, Deviation::Unreadable)),
                        }
                    }
                    _ => scan.refused.push((path, Deviation::NotRegular)),
                }
            }
        }
        Ok(scan)
    }

    /// Whether a link stays where it may lead. A link to nothing inside does: what it leads to
    /// cannot be added unnoticed.
    fn may_lead(&self, path: &str, links: &Links<'_>) -> bool {
        let inside = match self.0.open_once(path, OFlags::PATH) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => true,
            Err(_) => false,
        };
        match links {
            _ if inside => true,
            Links::Inside => false,
            Links::OutOf(rest) => {
                let real = self.0.join(path).canonicalize();
                real.is_ok_and(|real| !real.starts_with(rest))
            }
        }
    }

    /// The hash of a regular file; with `settle`, also whether the file cannot change from now
    /// on without getting another state than this one.
    pub(crate) fn hash(
        &self,
        path: &str,
        state: &FileIdentity,
        settle: bool,
    ) -> io::Result<(Hash, bool)> {
        let tick = CoarseInstant::now();
        let file = File::from(self.open_file(path)?);
        let is_settled = settle && updates_times(file.as_fd());
        let (hash, _) = Hash::digest_reader(&file)?;
        let after = FileIdentity::from_stat(&fstat(&file)?);
        Ok((hash, is_settled && after == *state && tick.is_after(state)))
    }

    /// The bytes of a regular file.
    pub(crate) fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut File::from(self.open_file(path)?), &mut bytes)?;
        Ok(bytes)
    }

    fn open_file(&self, path: &str) -> Result<OwnedFd, Errno> {
        // Without O_NONBLOCK, opening a pipe waits for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.open_inside(path, flags)?;
        let kind = FileType::from_raw_mode(fstat(&fd)?.st_mode);
        if kind == FileType::RegularFile {
            Ok(fd)
        } else {
            Err(Errno::INVAL)
        }
    }

    fn open_inside(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        loop {
            match openat2(&self.0.fd, path, flags, Mode::empty(), resolve) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                other => return other,
            }
        }
    }
}

impl Filter<'_> {
    fn passes_over(&self, name: &str, depth: usize, kind: FileType) -> bool {
        match kind {
            FileType::Directory | FileType::Symlink
                if self.exclude_dirs.iter().any(|dir| dir == name) =>
            {
                true
            }
            FileType::Directory => !self.recursive,
            FileType::RegularFile => name == MANIFEST && (depth == 0 || self.nested_manifests),
            _ => false,
        }
    }
}
