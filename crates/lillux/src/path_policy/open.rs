//! Opening what was classified: no link is followed, so nothing else is opened when a
//! directory on the way is replaced by a link meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use super::{PathPolicy, Private};

/// How often a walk is repeated that a concurrent rename disturbed.
const ATTEMPTS: usize = 8;

/// A directory that is held open, so that files in it are reached without walking to it again.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// A path of a file in this very directory, whatever its own path leads to by now.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// A path of this very directory.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl PathPolicy {
    /// Opens a file whose [real](super::Classified::real) path was classified. Fails with
    /// `PermissionDenied` where it is a hard link of a private file.
    pub fn open(private: &Private, real: &Path, flags: OFlags) -> io::Result<File> {
        let file = File::from(open_without_links(real, flags)?);
        if private.is_private(&file.metadata()?) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(file)
    }

    /// Opens a directory whose real path was classified.
    pub fn open_folder(real: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok(Folder(open_without_links(real, flags)?))
    }

    /// Opens a directory whose real path was classified, and creates what is missing of it.
    pub fn create_folder(real: &Path) -> io::Result<Folder> {
        match Self::open_folder(real) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (Some(above), Some(name)) = (real.parent(), real.file_name()) else {
            return Self::open_folder(real);
        };
        let above = Self::create_folder(above)?;
        match mkdirat(&above.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder(openat(&above.0, name, flags, Mode::empty())?))
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
