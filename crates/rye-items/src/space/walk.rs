//! All files below a folder of a space.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use lillux::PathContext as _;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};

use super::confined_dir::{ConfinedDir, FileIdentity};
use super::error::SpaceError;

/// Folders of package managers and caches: full of files, none of them items.
const SKIPPED: [&str; 2] = ["node_modules", "__pycache__"];

/// Whether a name is passed by: hidden, or a folder of a package manager or cache.
pub(crate) fn is_passed_by(name: &str) -> bool {
    name.starts_with('.') || SKIPPED.contains(&name)
}

/// Deeper than any tree that was made on purpose.
const DEEPEST: usize = 64;

/// How much of a tree may be reached through links. A few folders with links to
/// each other have more paths through them than anybody can wait for.
const MOST_LINKED: usize = 20_000;

/// A regular file of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to `.ai/`, with slashes.
    pub path: String,
    /// Its state; none for what is embedded.
    pub identity: Option<FileIdentity>,
    /// Whether it has other names or is reached through a link, so that it can
    /// change without its folder being told.
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

/// Who wants to hear of a walk while it goes on, so as to watch what it passes.
pub(crate) trait Observer {
    /// A folder is about to be listed: what happens in it from now on is either
    /// in the list or can be heard of by who watches the folder now.
    fn folder(&mut self, folder: BorrowedFd<'_>);

    /// A link that leads to a folder, to nothing, or nowhere good: what it leads
    /// to can change without any folder of the walk being told.
    fn loose_link(&mut self);

    /// Whether a name is not even looked at.
    fn passes_by(&self, name: &str, kind: FileType) -> bool {
        name.starts_with('.') || (kind == FileType::Directory && SKIPPED.contains(&name))
    }
}

/// Nobody.
impl Observer for () {
    fn folder(&mut self, _: BorrowedFd<'_>) {}
    fn loose_link(&mut self) {}
}

pub(super) fn folder(
    root: &ConfinedDir,
    below: &str,
    observer: &mut dyn Observer,
) -> Vec<Result<Entry, SpaceError>> {
    let mut walk = Walk {
        root,
        observer,
        above: Vec::new(),
        links_left: MOST_LINKED,
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
    /// The folders that are being walked, by device and inode: a link to one of
    /// them would be walked for ever.
    above: Vec<(u64, u64)>,
    /// How many more files and folders may be reached through links.
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
        if self.above.len() >= DEEPEST {
            return Err(SpaceError::TooDeep(self.root.join(path)));
        }
        self.observer.folder(fd.as_fd());
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
                let place = self.root.join(path).join(shown);
                self.found
                    .push((path.to_owned(), Err(SpaceError::NonUtf8Name(place))));
                continue;
            };
            if matches!(name, "." | "..") || self.observer.passes_by(name, entry.file_type()) {
                continue;
            }
            let inner = format!("{path}/{name}");
            let linked = linked || entry.file_type() == FileType::Symlink;
            if linked && !self.may_follow(&inner) {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => self.folder(&inner, linked),
                FileType::RegularFile => {
                    let fd = dir.fd().at("read the directory", self.root.join(path))?;
                    match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => self.file(inner, &stat, linked),
                        // Gone since the folder was read.
                        Err(rustix::io::Errno::NOENT) => {}
                        Err(error) => {
                            let error =
                                Err(error).at("read the metadata of", self.root.join(&inner));
                            self.found.push((inner, error.map_err(SpaceError::from)));
                        }
                    }
                }
                // A link, or a file system that does not say.
                _ => self.resolve(inner, linked),
            }
        }
        Ok(())
    }

    /// Whether one more may be reached through a link; the first that may not is told.
    fn may_follow(&mut self, path: &str) -> bool {
        let left = self.links_left;
        if left == 1 {
            let error = SpaceError::TooManyLinks(self.root.join(path));
            self.found.push((path.to_owned(), Err(error)));
        }
        self.links_left = left.saturating_sub(1);
        left > 1
    }

    fn folder(&mut self, path: &str, linked: bool) {
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
            // A link to nothing is nothing.
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
                    self.folder(&path, linked);
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
