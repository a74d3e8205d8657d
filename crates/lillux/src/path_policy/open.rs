//! Opens classified paths without following links, so that replacing a directory by a link
//! after the classification has no effect.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use super::{PathPolicy, PrivateDirs};

/// How often to repeat a path walk that a concurrent rename disturbed.
const ATTEMPTS: usize = 8;

/// An open directory. Paths through it stay valid if the directory is renamed or replaced.
#[derive(Debug)]
pub struct OpenDir(OwnedFd);

impl OpenDir {
    /// A path to an entry of this directory, through its descriptor.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// A path to this directory, through its descriptor.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl PathPolicy {
    /// Opens a file by its classified [real](super::ClassifiedPath::real) path. Fails with
    /// `PermissionDenied` if it is a hard link to a private file.
    pub fn open(private: &PrivateDirs, real: &Path, flags: OFlags) -> io::Result<File> {
        let file = File::from(open_without_links(real, flags)?);
        if private.is_private(&file.metadata()?) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(file)
    }

    /// Opens a directory by its classified real path.
    pub fn open_dir(real: &Path) -> io::Result<OpenDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok(OpenDir(open_without_links(real, flags)?))
    }

    /// Opens a directory by its classified real path and creates missing parts of it.
    pub fn create_dir(real: &Path) -> io::Result<OpenDir> {
        match Self::open_dir(real) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Self::open_dir(real);
        };
        let parent = Self::create_dir(parent)?;
        match mkdirat(&parent.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(OpenDir(openat(&parent.0, name, flags, Mode::empty())?))
    }
}

fn open_without_links(real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match openat2(CWD, real, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}
