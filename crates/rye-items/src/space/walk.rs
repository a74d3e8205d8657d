//! Lists all files below a directory of a space.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use lillux::PathContext as _;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};

use super::confined_dir::{ConfinedDir, FileIdentity};
use super::error::SpaceError;

/// Directories of package managers and caches, which contain no items.
const SKIPPED: [&str; 2] = ["node_modules", "__pycache__"];

/// Whether a name is skipped: hidden, or a directory of a package manager or cache.
pub(crate) fn is_skipped(name: &str) -> bool {
    name.starts_with('.') || SKIPPED.contains(&name)
}

/// The maximum nesting depth.
const MAX_DEPTH: usize = 64;

/// The maximum number of files and directories reached through links. A few directories that
/// link to each other have exponentially many paths.
const MAX_LINKED: usize = 20_000;

/// A regular file of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to `.ai/`, with slashes.
    pub path: String,
    /// The state of the file; none for an embedded file.
    pub identity: Option<FileIdentity>,
    /// Whether the file has several hard links or is reached through a symbolic link. Such a file
    /// can change without an event for its directory.
    pub linked: bool,
}

impl Entry {
    pub(super) fn embedded(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            identity: None,
            linked: false,
        }
    }

    /// The file name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Callbacks during a walk, with which a file watcher watches what the walk visits.
pub(crate) trait Observer {
    /// Called before a directory is listed. A watch that is added now misses no change: it is
    /// either in the listing or reported by the watch.
    fn directory(&mut self, dir: BorrowedFd<'_>);

    /// Called for a link to a directory, and for a dangling or invalid link. Its target can change
    /// without an event for any directory of the walk.
    fn loose_link(&mut self);

    /// Whether an entry is skipped.
    fn skips(&self, name: &str, kind: FileType) -> bool {
        name.starts_with('.') || (kind == FileType::Directory && SKIPPED.contains(&name))
    }
}

/// The observer that does nothing.
impl Observer for () {
    fn directory(&mut self, _: BorrowedFd<'_>) {}
    fn loose_link(&mut self) {}
}

pub(super) fn walk_dir(
    root: &ConfinedDir,
    below: &str,
    observer: &mut dyn Observer,
) -> Vec<Result<Entry, SpaceError>> {
    let mut walk = Walk {
        root,
        observer,
        above: Vec::new(),
        links_left: MAX_LINKED,
        found: Vec::new(),
    };
    match root.open_below(below, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(Some(fd)) => {
            let here = statat(&root.fd, below, AtFlags::SYMLINK_NOFOLLOW);
            let is_link = |stat| FileType::from_raw_mode(stat) == FileType::Symlink;
            let linked = here.is_ok_and(|stat| is_link(stat.st_mode));
            if linked {
                walk.observer.loose_link();
            }
            walk.enter(fd, below, linked);
        }
        Ok(None) if statat(&root.fd, below, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
            let error = SpaceError::NotADirectory(root.join(below));
            walk.found.push((below.to_owned(), Err(error)));
        }
        Ok(None) => {}
        Err(error) => walk.found.push((below.to_owned(), Err(error))),
    }
    let mut found = walk.found;
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.into_iter().map(|(_, entry)| entry).collect()
}

struct Walk<'a> {
    root: &'a ConfinedDir,
    observer: &'a mut dyn Observer,
    /// Device and inode of the directories on the current path, to detect link loops.
    above: Vec<(u64, u64)>,
    /// The remaining number of files and directories that may be reached through links.
    links_left: usize,
    found: Vec<(String, Result<Entry, SpaceError>)>,
}

impl Walk<'_> {
    fn enter(&mut self, fd: OwnedFd, path: &str, linked: bool) {
        if let Err(error) = self.try_enter(fd, path, linked) {
            self.found.push((path.to_owned(), Err(error)));
        }
    }

    fn try_enter(&mut self, fd: OwnedFd, path: &str, linked: bool) -> Result<(), SpaceError> {
        let stat = fstat(&fd).at("read the metadata of", self.root.join(path))?;
        let here = (stat.st_dev, stat.st_ino);
        if self.above.contains(&here) {
            return Err(SpaceError::LinkLoop(self.root.join(path)));
        }
        if self.above.len() >= MAX_DEPTH {
            return Err(SpaceError::TooDeep(self.root.join(path)));
        }
        self.observer.directory(fd.as_fd());
        self.above.push(here);
        let outcome = self.entries(fd, path, linked);
        self.above.pop();
        outcome
    }

    fn entries(&mut self, fd: OwnedFd, path: &str, linked: bool) -> Result<(), SpaceError> {
        let mut dir = Dir::new(fd).at("read the directory", self.root.join(path))?;
        while let Some(entry) = dir.read() {
            let entry = entry.at("read the directory", self.root.join(path))?;
            let Ok(name) = entry.file_name().to_str() else {
                let shown = entry.file_name().to_string_lossy().into_owned();
                let shown = self.root.join(path).join(shown);
                self.found
                    .push((path.to_owned(), Err(SpaceError::NonUtf8Name(shown))));
                continue;
            };
            if matches!(name, "." | "..") || self.observer.skips(name, entry.file_type()) {
                continue;
            }
            let inner = format!("{path}/{name}");
            let linked = linked || entry.file_type() == FileType::Symlink;
            if linked && !self.may_follow(&inner) {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => self.directory(&inner, linked),
                FileType::RegularFile => {
                    let fd = dir.fd().at("read the directory", self.root.join(path))?;
                    match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => self.file(inner, &stat, linked),
                        // Removed since the directory was read.
                        Err(rustix::io::Errno::NOENT) => {}
                        Err(error) => {
                            let error =
                                Err(error).at("read the metadata of", self.root.join(&inner));
                            self.found.push((inner, error.map_err(SpaceError::from)));
                        }
                    }
                }
                // A link, or the file system does not report the type.
                _ => self.resolve(inner, linked),
            }
        }
        Ok(())
    }

    /// Whether one more path may be reached through a link. Reports an error when the limit is
    /// reached.
    fn may_follow(&mut self, path: &str) -> bool {
        let left = self.links_left;
        if left == 1 {
            let error = SpaceError::TooManyLinks(self.root.join(path));
            self.found.push((path.to_owned(), Err(error)));
        }
        self.links_left = left.saturating_sub(1);
        left > 1
    }

    fn directory(&mut self, path: &str, linked: bool) {
        match self
            .root
            .open_below(path, OFlags::RDONLY | OFlags::DIRECTORY)
        {
            Ok(Some(fd)) => self.enter(fd, path, linked),
            Ok(None) => {}
            Err(error) => self.found.push((path.to_owned(), Err(error))),
        }
    }

    fn resolve(&mut self, path: String, linked: bool) {
        let fd = match self.root.open_below(&path, OFlags::PATH) {
            Ok(Some(fd)) => fd,
            // A dangling link.
            Ok(None) => return self.observer.loose_link(),
            Err(error) => {
                self.observer.loose_link();
                return self.found.push((path, Err(error)));
            }
        };
        match fstat(&fd) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.file(path, &stat, linked),
                FileType::Directory => {
                    self.observer.loose_link();
                    self.directory(&path, linked);
                }
                _ => self.observer.loose_link(),
            },
            Err(error) => {
                self.observer.loose_link();
                let error = Err(error).at("read the metadata of", self.root.join(&path));
                self.found.push((path, error.map_err(SpaceError::from)));
            }
        }
    }

    fn file(&mut self, path: String, stat: &rustix::fs::Stat, linked: bool) {
        let entry = Entry {
            path: path.clone(),
            identity: Some(FileIdentity::from_stat(stat)),
            linked: linked || stat.st_nlink > 1,
        };
        self.found.push((path, Ok(entry)));
    }
}
