//! A folder from which no path leads out, whatever links are in it.
//!
//! The kernel sees to that: `openat2` with `RESOLVE_BENEATH` refuses every step
//! that would leave the folder, also when links change while it walks.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use lillux::PathContext as _;
use lillux::file_times::updates_times;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::access_log::{AccessLog, Look};
use super::error::SpaceError;
use crate::verify::CoarseInstant;

/// Far above any source file, far below what would hurt to hold in memory.
pub const LARGEST_FILE: u64 = 16 << 20;

/// How often a walk is begun again that a concurrent rename disturbed, or a
/// read during which the file changed.
const ATTEMPTS: usize = 8;

/// What tells one state of a file from another without reading it. The change
/// time is the kernel's own: nobody can set it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// When the content changed last, in nanoseconds since 1970.
    pub modified: i128,
    /// When anything about the file changed last, in nanoseconds since 1970.
    pub changed: i128,
}

impl FileIdentity {
    /// From what the kernel says about a file.
    pub fn from_stat(stat: &Stat) -> Self {
        let time =
            |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        #[expect(
            clippy::cast_sign_loss,
            reason = "the kernel reports no negative sizes of files"
        )]
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// All of it, for hashing.
    pub(crate) fn to_bytes(self) -> [u8; 56] {
        let mut bytes = [0; 56];
        bytes[..8].copy_from_slice(&self.device.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.inode.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.modified.to_le_bytes());
        bytes[40..].copy_from_slice(&self.changed.to_le_bytes());
        bytes
    }

    /// Whether a file that was read after this tick of the clock, and looked so,
    /// would look different after any later change.
    ///
    /// The kernel stamps a change with a clock that advances in ticks, and some
    /// file systems keep only whole seconds of it. A file that was read in the
    /// tick in which it changed may change once more in that tick, at the same
    /// size, and look as before.
    pub(crate) fn is_settled(&self, tick: i128) -> bool {
        let latest = self.changed.max(self.modified);
        latest + grain(latest) < tick
    }
}

/// How coarse the times of the file system may be, judged by one of them: FAT
/// has steps of two seconds, others of one, exFAT of ten milliseconds.
fn grain(time: i128) -> i128 {
    const SECOND: i128 = 1_000_000_000;
    if time % SECOND == 0 {
        2 * SECOND
    } else if time % (SECOND / 100) == 0 {
        SECOND / 100
    } else {
        0
    }
}

/// The bytes of a file, read once, and what the file was when they were.
#[derive(Debug, Clone)]
pub struct RawFile {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// The state they belong to; none for what is embedded.
    pub identity: Option<FileIdentity>,
}

/// An open folder. It lives for a call, and what it once found missing stays so.
#[derive(Debug)]
pub(super) struct ConfinedDir {
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
    /// Which folder it is; as long as it is open, no other can be the same.
    identity: OnceLock<(u64, u64)>,
    /// Folders two steps down, such as `config/keys`, and whether they are there.
    /// Most are not, and then nothing in them need be asked for.
    below: Mutex<Vec<(Box<str>, bool)>>,
    pub(super) looks: AccessLog,
}

impl ConfinedDir {
    fn new(path: PathBuf, fd: OwnedFd) -> Self {
        Self {
            path,
            fd,
            identity: OnceLock::new(),
            below: Mutex::default(),
            looks: AccessLog::default(),
        }
    }

    /// Its device and inode, wherever its path leads by now.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        if let Some(known) = self.identity.get() {
            return Some(*known);
        }
        let stat = fstat(&self.fd).ok()?;
        Some(*self.identity.get_or_init(|| (stat.st_dev, stat.st_ino)))
    }

    /// Begins another call: what was missing may be there by now.
    pub(super) fn forget_what_is_missing(&self) {
        self.below().clear();
    }

    /// None where there is nothing of that name.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, SpaceError> {
        let path = std::path::absolute(path).at("open", path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match open(&path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self::new(path, fd))),
            Err(Errno::NOENT | Errno::NOTDIR) => match path.symlink_metadata() {
                Err(_) => Ok(None),
                // It was made in between.
                Ok(_) if path.is_dir() => match open(&path, flags, Mode::empty()) {
                    Ok(fd) => Ok(Some(Self::new(path, fd))),
                    Err(error) => Err(error).at("open the directory", path)?,
                },
                Ok(_) => Err(SpaceError::NotADirectory(path)),
            },
            Err(Errno::LOOP) => Err(SpaceError::LinkLoop(path)),
            Err(error) => Err(error).at("open the directory", path)?,
        }
    }

    /// The folder of this name in another; a link in its place must not lead out
    /// of that one.
    pub(super) fn open_inside(parent: &Path, name: &str) -> Result<Option<Self>, SpaceError> {
        let path = std::path::absolute(parent).at("open", parent)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = match open(&path, flags, Mode::empty()) {
            Ok(fd) => Self::new(path, fd),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => return Err(SpaceError::LinkLoop(path)),
            Err(error) => return Err(error).at("open the directory", path)?,
        };
        let path = parent.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Some(fd) = parent.open_below(name, flags)? {
            return Ok(Some(Self::new(path, fd)));
        }
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        // It may have been made in between.
        match parent.open_below(name, flags)? {
            Some(fd) => Ok(Some(Self::new(path, fd))),
            None => Err(SpaceError::NotADirectory(path)),
        }
    }

    /// A folder in this one, confined to itself; none where there is none.
    pub(super) fn subdir(&self, relative: &str) -> Result<Option<Self>, SpaceError> {
        let fd = self.open_below(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(fd.map(|fd| Self::new(self.join(relative), fd)))
    }

    /// Where a path in the folder is.
    pub(super) fn join(&self, relative: &str) -> PathBuf {
        self.path.join(relative)
    }

    /// What is there: its state, if it is a regular file; none if there is nothing.
    pub(super) fn stat(&self, relative: &str) -> Result<Option<FileIdentity>, SpaceError> {
        let tick = CoarseInstant::now();
        let Some(fd) = self.open_to_read(relative, OFlags::PATH)? else {
            return Ok(None);
        };
        let stat = fstat(&fd).at("read the metadata of", self.join(relative))?;
        self.looks
            .note_state(relative, FileIdentity::from_stat(&stat), tick);
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(regular.then(|| FileIdentity::from_stat(&stat)))
    }

    /// The names in a folder that begin so, and what they are, if the folder has
    /// few names; none if it has many. What is not there has none.
    pub(super) fn few_names(
        &self,
        relative: &str,
        beginning: &str,
    ) -> Result<Option<Vec<(String, FileType)>>, SpaceError> {
        const FEW: usize = 200;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Some(fd) = self.open_to_read(relative, flags)? else {
            return Ok(Some(Vec::new()));
        };
        if self.looks.are_noted() {
            let tick = CoarseInstant::now();
            let stat = fstat(&fd).at("read the metadata of", self.join(relative))?;
            self.looks
                .note_state(relative, FileIdentity::from_stat(&stat), tick);
        }
        let mut names = Vec::new();
        let entries = Dir::new(fd).at("read the directory", self.join(relative))?;
        for (number, entry) in entries.enumerate() {
            let entry = entry.at("read the directory", self.join(relative))?;
            if number == FEW {
                return Ok(None);
            }
            if let Ok(name) = entry.file_name().to_str()
                && name.starts_with(beginning)
            {
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok(Some(names))
    }

    /// Reads a file whole: all of one state of it, or an error.
    pub(super) fn read(&self, relative: &str) -> Result<Option<RawFile>, SpaceError> {
        // Without O_NONBLOCK a pipe would wait for somebody to write.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = || self.join(relative);
        for _ in 0..ATTEMPTS {
            let Some(fd) = self.open_to_read(relative, flags)? else {
                return Ok(None);
            };
            let before = fstat(&fd).at("read the metadata of", path())?;
            if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
                return Err(SpaceError::NotAFile(path()));
            }
            let before = FileIdentity::from_stat(&before);
            if before.size > LARGEST_FILE {
                let (path, size) = (path(), before.size);
                return Err(SpaceError::TooLarge { path, size });
            }
            let mut file = File::from(fd);
            let bytes = read_all(&mut file, before.size).at("read", path())?;
            let after = FileIdentity::from_stat(&fstat(&file).at("read the metadata of", path())?);
            if before == after && bytes.len() as u64 == before.size {
                let identity = Some(before);
                self.looks
                    .note(relative, || Look::File(bytes.as_slice().into()));
                return Ok(Some(RawFile { bytes, identity }));
            }
        }
        Err(SpaceError::ChangedWhileReading(path()))
    }

    /// The state of a file whose content cannot change from now on without a new state; none
    /// while somebody has it open for writing, and where that cannot be determined.
    pub(super) fn settled_state(&self, relative: &str) -> Option<FileIdentity> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.open_below(relative, flags).ok()??;
        let state = FileIdentity::from_stat(&fstat(&fd).ok()?);
        updates_times(fd.as_fd()).then_some(state)
    }

    /// Where a file really is, after all links on the way to it. Whoever asks may
    /// be about to write there.
    pub(super) fn real_path(&self, relative: &str) -> Result<Option<PathBuf>, SpaceError> {
        use std::os::fd::AsRawFd as _;
        self.below().clear();
        let Some(fd) = self.open_below(relative, OFlags::PATH)? else {
            return Ok(None);
        };
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let real = std::fs::read_link(name).at("read the metadata of", self.join(relative))?;
        Ok(Some(real))
    }

    fn below(&self) -> MutexGuard<'_, Vec<(Box<str>, bool)>> {
        self.below.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_to_read(&self, relative: &str, flags: OFlags) -> Result<Option<OwnedFd>, SpaceError> {
        if self.is_in_nothing(relative) {
            return Ok(None);
        }
        let opened = self.open_below(relative, flags)?;
        if opened.is_none() {
            self.looks.note(relative, || Look::Nothing);
        }
        Ok(opened)
    }

    /// Whether a folder on the way to a path is known to be missing.
    fn is_in_nothing(&self, relative: &str) -> bool {
        let Some(folder) = two_steps(relative) else {
            return false;
        };
        let mut below = self.below();
        if let Some((_, is_there)) = below.iter().find(|(known, _)| **known == *folder) {
            return !is_there;
        }
        let opened = self.open_once(folder, OFlags::PATH);
        let is_there = !matches!(opened, Err(Errno::NOENT | Errno::NOTDIR));
        below.push((folder.into(), is_there));
        if !is_there {
            self.looks.note(folder, || Look::Nothing);
        }
        !is_there
    }

    pub(super) fn open_once(&self, relative: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        openat2(&self.fd, relative, flags, Mode::empty(), resolve)
    }

    pub(super) fn open_below(
        &self,
        relative: &str,
        flags: OFlags,
    ) -> Result<Option<OwnedFd>, SpaceError> {
        let path = || self.join(relative);
        for _ in 0..ATTEMPTS {
            match self.open_once(relative, flags) {
                Ok(fd) => return Ok(Some(fd)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(None),
                Err(Errno::XDEV) => return Err(SpaceError::LeavesSpace(path())),
                Err(Errno::LOOP) => return Err(SpaceError::LinkLoop(path())),
                // A socket, or a device without a driver.
                Err(Errno::NXIO | Errno::NODEV) => return Err(SpaceError::NotAFile(path())),
                // Something on the way was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error).at("open", path())?,
            }
        }
        Err(SpaceError::ChangedWhileReading(path()))
    }
}

/// The first two steps of a path that has more.
fn two_steps(relative: &str) -> Option<&str> {
    let (end, _) = relative.match_indices('/').nth(1)?;
    Some(&relative[..end])
}

/// Reads as much as the expected size and one byte more, if there is one. That it
/// was all of it is told by the state of the file afterwards.
fn read_all(file: &mut File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default() + 1];
    let mut read = 0;
    // A regular file gives less than was asked for only at its end.
    while read < bytes.len() - 1 {
        match file.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_missing_is_there_for_the_next_call_and_for_who_wrote_it() {
        let place = tempfile::tempdir().unwrap();
        let open = || ConfinedDir::open(place.path()).unwrap().unwrap();
        let (writer, file) = (open(), "config/keys/a.toml");
        assert!(writer.read(file).unwrap().is_none());
        fs::create_dir_all(place.path().join("config/keys")).unwrap();
        fs::write(place.path().join(file), "a").unwrap();
        assert_eq!(open().read(file).unwrap().unwrap().bytes, b"a");
        assert!(writer.real_path(file).unwrap().is_some());
        assert_eq!(writer.read(file).unwrap().unwrap().bytes, b"a");
        assert!(writer.stat("config/keys/b.toml").unwrap().is_none());
    }
}
