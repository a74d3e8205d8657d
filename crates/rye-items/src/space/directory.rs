//! Scans a directory for everything that a process could load from it.
//!
//! Unlike [`walk`](super::walk), which lists the items of a space, the scan reports hidden files,
//! links, pipes and names that are not UTF-8 too. It never follows links.

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

use super::confined_dir::{ConfinedDir, FileClock, FileIdentity};
use super::error::SpaceError;
use super::root::Root;
use crate::manifest::{MANIFEST, is_listable};

/// The maximum nesting depth.
const MAX_DEPTH: usize = 64;

/// Which entries of a directory a scan includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter<'a> {
    /// Whether subdirectories are scanned.
    pub(crate) recursive: bool,
    /// Names of directories, or of links, that are skipped at every level.
    pub(crate) exclude_dirs: &'a [String],
    /// Whether manifests in subdirectories are skipped, like the one at the top.
    pub(crate) nested_manifests: bool,
    /// Which link targets are allowed.
    pub(crate) links: Links<'a>,
}

/// Allowed targets of the links in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Links<'a> {
    /// Only targets inside the directory.
    Inside,
    /// Targets inside the directory, or outside this other directory.
    NotInto(&'a Path),
}

/// A file or link of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirEntry {
    /// A regular file and its state.
    File(FileIdentity),
    /// A symbolic link and its unresolved target.
    Link(String),
}

/// How an entry of a directory differs from the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Deviation {
    /// The entry is not listed.
    Added,
    /// The entry is listed but does not exist.
    Missing,
    /// The content, or the target of a link, differs.
    Changed,
    /// The entry is neither a regular file, a directory nor a link.
    NotRegular,
    /// The target of a link is not allowed.
    LeavesDirectory,
    /// The entry cannot be read, or its name cannot be listed.
    Unreadable,
    /// The file has no valid signature line, and there is no manifest.
    Unsigned,
}

impl Deviation {
    /// A stable code for scripts.
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// The label in messages: `added helper.py`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotRegular => "not a regular file:",
            Self::LeavesDirectory => "link out of the directory:",
            other => other.code(),
        }
    }
}

/// The result of scanning a directory.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) entries: BTreeMap<String, DirEntry>,
    /// Entries that a manifest cannot list.
    pub(crate) refused: Vec<(String, Deviation)>,
}

/// An open directory. No path resolves to a file outside it.
#[derive(Debug)]
pub(crate) struct Directory(ConfinedDir);

impl Directory {
    /// Opens a directory; none if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, SpaceError> {
        Ok(ConfinedDir::open(path)?.map(Self))
    }

    /// Opens a directory of a space on disk; none if it does not exist.
    pub(crate) fn open_in(root: &Root, relative: &str) -> Result<Option<Self>, SpaceError> {
        root.subdir(relative).map(|found| found.map(Self))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// The path with all links resolved.
    pub(crate) fn real_path(&self) -> Result<PathBuf, SpaceError> {
        let real = self.0.real_path(".")?;
        real.ok_or_else(|| SpaceError::ChangedWhileReading(self.0.path.clone()))
    }

    /// Reads a whole file of limited size.
    pub(crate) fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, SpaceError> {
        Ok(self.0.read(relative)?.map(|raw| raw.bytes))
    }

    /// Lists all entries that a filter includes.
    pub(crate) fn scan(&self, filter: &Filter<'_>) -> Result<Scan, SpaceError> {
        let mut scan = Scan::default();
        let mut pending = vec![(String::new(), 0)];
        while let Some((dir_path, depth)) = pending.pop() {
            if depth > MAX_DEPTH {
                return Err(SpaceError::TooDeep(self.0.join(&dir_path)));
            }
            let opened = if dir_path.is_empty() { "." } else { &dir_path };
            let fd = match self.open_inside(opened, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(fd) => fd,
                // Renamed or removed since its parent was listed.
                Err(_) if depth > 0 => {
                    scan.refused.push((dir_path, Deviation::Unreadable));
                    continue;
                }
                Err(error) => return Err(error).at("open the directory", self.path())?,
            };
            let mut dir = Dir::new(fd).at("read the directory", self.0.join(opened))?;
            while let Some(entry) = dir.read() {
                let entry = entry.at("read the directory", self.0.join(opened))?;
                let bytes = entry.file_name().to_bytes();
                if matches!(bytes, b"." | b"..") {
                    continue;
                }
                let name = entry.file_name().to_string_lossy();
                let path = match dir_path.as_str() {
                    "" => name.clone().into_owned(),
                    parent => format!("{parent}/{name}"),
                };
                let fd = dir.fd().at("read the directory", self.0.join(opened))?;
                let Ok(stat) = statat(fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
                    scan.refused.push((path, Deviation::Unreadable));
                    continue;
                };
                let kind = FileType::from_raw_mode(stat.st_mode);
                if filter.skips(&name, depth, kind) {
                    continue;
                }
                if entry.file_name().to_str().is_err() || !is_listable(&path) {
                    scan.refused.push((path, Deviation::Unreadable));
                    continue;
                }
                match kind {
                    FileType::RegularFile => {
                        scan.entries
                            .insert(path, DirEntry::File(FileIdentity::from_stat(&stat)));
                    }
                    FileType::Directory => pending.push((path, depth + 1)),
                    FileType::Symlink => {
                        let target = readlinkat(fd, entry.file_name(), Vec::new());
                        let target = target.ok().and_then(|target| target.into_string().ok());
                        match target {
                            Some(target) if is_listable(&target) => {
                                if self.is_allowed_link(&path, &filter.links) {
                                    scan.entries.insert(path, DirEntry::Link(target));
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

    /// Whether the target of a link is allowed. A dangling link inside the directory is allowed,
    /// because adding its target would be reported.
    fn is_allowed_link(&self, path: &str, links: &Links<'_>) -> bool {
        let inside = match self.0.open_once(path, OFlags::PATH) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => true,
            Err(_) => false,
        };
        match links {
            _ if inside => true,
            Links::Inside => false,
            Links::NotInto(rest) => {
                let real = self.0.join(path).canonicalize();
                real.is_ok_and(|real| !real.starts_with(rest))
            }
        }
    }

    /// Hashes a regular file. With `check_stable`, also returns whether every later change will
    /// give the file another state than `state`.
    pub(crate) fn hash(
        &self,
        path: &str,
        state: &FileIdentity,
        check_stable: bool,
    ) -> io::Result<(Hash, bool)> {
        let started = FileClock::now();
        let file = File::from(self.open_file(path)?);
        let is_stable = check_stable && updates_times(file.as_fd());
        let (hash, _) = Hash::digest_reader(&file)?;
        let after = FileIdentity::from_stat(&fstat(&file)?);
        Ok((
            hash,
            is_stable && after == *state && state.has_reliable_times(started),
        ))
    }

    /// Reads the bytes of a regular file.
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
    fn skips(&self, name: &str, depth: usize, kind: FileType) -> bool {
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
