//! A directory that no path can escape, whatever links it contains.
//!
//! The kernel enforces this: `openat2` with `RESOLVE_BENEATH` refuses every path component that
//! would leave the directory, even if links change during resolution.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lillux::PathContext as _;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::error::SpaceError;

/// The maximum size of an item in bytes.
pub const LARGEST_FILE: u64 = 16 << 20;

/// How often path resolution is retried after a concurrent rename, and reading after a concurrent
/// write.
const ATTEMPTS: usize = 8;

/// The state of a file, which detects changes without reading it. Programs cannot set the change
/// time (ctime).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The device number.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// Time of the last content change (mtime), in nanoseconds since 1970.
    pub modified: i64,
    /// Time of the last inode change (ctime), in nanoseconds since 1970.
    pub changed: i64,
}

impl FileIdentity {
    /// Converts the result of `stat`.
    pub fn from_stat(stat: &Stat) -> Self {
        // A time after the year 2262 is never reliable, so its exact value does not matter.
        let time = |seconds: i64, nanos: u64| {
            let nanos = i64::try_from(nanos).unwrap_or_default();
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        };
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

    /// Whether every change after `tick` must alter this state.
    ///
    /// The kernel takes timestamps from a clock that advances in ticks, and some file systems
    /// store only whole seconds. A file that changed in the current tick can change again in the
    /// same tick, with the same size, and keep the same state.
    pub(crate) fn has_reliable_times(&self, tick: FileClock) -> bool {
        let latest = self.changed.max(self.modified);
        latest.saturating_add(granularity(latest)) < tick.0
    }
}

/// The kernel's clock for file timestamps, in nanoseconds since 1970. Sample it before you read a
/// file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileClock(pub(crate) i64);

impl FileClock {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(now.tv_sec.saturating_mul(1_000_000_000) + now.tv_nsec)
    }
}

/// The timestamp granularity of the file system, guessed from one timestamp: FAT has 2 s, others
/// 1 s, exFAT 10 ms.
fn granularity(time: i64) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    if time % SECOND == 0 {
        2 * SECOND
    } else if time % (SECOND / 100) == 0 {
        SECOND / 100
    } else {
        0
    }
}

/// The bytes of a file and its state when they were read.
#[derive(Debug, Clone)]
pub struct RawFile {
    /// The whole content.
    pub bytes: Vec<u8>,
    /// The state of the file; none for an embedded file.
    pub identity: Option<FileIdentity>,
}

/// An open directory.
#[derive(Debug)]
pub(super) struct ConfinedDir {
    pub(super) path: PathBuf,
    pub(super) fd: OwnedFd,
}

impl ConfinedDir {
    /// Device and inode of the open directory, even if its path now refers to another one.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        let stat = fstat(&self.fd).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Opens a directory; none if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, SpaceError> {
        let path = std::path::absolute(path).at("open", path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match open(&path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { path, fd })),
            Err(Errno::NOENT | Errno::NOTDIR) => match path.symlink_metadata() {
                Err(_) => Ok(None),
                // It was created in between.
                Ok(_) if path.is_dir() => match open(&path, flags, Mode::empty()) {
                    Ok(fd) => Ok(Some(Self { path, fd })),
                    Err(error) => Err(error).at("open the directory", path)?,
                },
                Ok(_) => Err(SpaceError::NotADirectory(path)),
            },
            Err(Errno::LOOP) => Err(SpaceError::LinkLoop(path)),
            Err(error) => Err(error).at("open the directory", path)?,
        }
    }

    /// Opens a subdirectory; none if it does not exist. A link must not leave the parent.
    pub(super) fn open_inside(parent: &Path, name: &str) -> Result<Option<Self>, SpaceError> {
        let path = std::path::absolute(parent).at("open", parent)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = match open(&path, flags, Mode::empty()) {
            Ok(fd) => Self { path, fd },
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => return Err(SpaceError::LinkLoop(path)),
            Err(error) => return Err(error).at("open the directory", path)?,
        };
        let path = parent.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Some(fd) = parent.open_below(name, flags)? {
            return Ok(Some(Self { path, fd }));
        }
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        // It may have been created in between.
        match parent.open_below(name, flags)? {
            Some(fd) => Ok(Some(Self { path, fd })),
            None => Err(SpaceError::NotADirectory(path)),
        }
    }

    /// Opens a subdirectory that is confined to itself; none if it does not exist.
    pub(super) fn subdir(&self, relative: &str) -> Result<Option<Self>, SpaceError> {
        let fd = self.open_below(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(fd.map(|fd| Self {
            path: self.join(relative),
            fd,
        }))
    }

    /// The path of a file in this directory, to display.
    pub(super) fn join(&self, relative: &str) -> PathBuf {
        self.path.join(relative)
    }

    /// The state of a regular file; none if the path does not exist or is not a regular file.
    pub(super) fn stat(&self, relative: &str) -> Result<Option<FileIdentity>, SpaceError> {
        let Some(fd) = self.open_below(relative, OFlags::PATH)? else {
            return Ok(None);
        };
        let stat = fstat(&fd).at("read the metadata of", self.join(relative))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(regular.then(|| FileIdentity::from_stat(&stat)))
    }

    /// Reads a whole file in a consistent state; none if it does not exist.
    pub(super) fn read(&self, relative: &str) -> Result<Option<RawFile>, SpaceError> {
        // Without O_NONBLOCK, opening a pipe waits for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = || self.join(relative);
        for _ in 0..ATTEMPTS {
            let Some(fd) = self.open_below(relative, flags)? else {
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
                return Ok(Some(RawFile { bytes, identity }));
            }
        }
        Err(SpaceError::ChangedWhileReading(path()))
    }

    /// The path of a file with all links resolved.
    pub(super) fn real_path(&self, relative: &str) -> Result<Option<PathBuf>, SpaceError> {
        use std::os::fd::AsRawFd as _;
        let Some(fd) = self.open_below(relative, OFlags::PATH)? else {
            return Ok(None);
        };
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let real = std::fs::read_link(name).at("read the metadata of", self.join(relative))?;
        Ok(Some(real))
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
                // A path component was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error).at("open", path())?,
            }
        }
        Err(SpaceError::ChangedWhileReading(path()))
    }
}

/// Reads up to one byte more than the expected size. The caller compares the file's state
/// afterwards to detect a concurrent write.
fn read_all(file: &mut File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default() + 1];
    let mut read = 0;
    // A regular file returns fewer bytes than requested only at its end.
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
    use super::*;

    #[test]
    fn only_changes_before_the_tick_are_reliable() {
        const SECOND: i64 = 1_000_000_000;
        let tick = 1_000 * SECOND + 500_000_002;
        let file = |changed| FileIdentity {
            device: 1,
            inode: 1,
            size: 1,
            modified: 0,
            changed,
        };
        for (changed, expected) in [
            (tick - 1, true),
            (tick, false),
            (tick + 1, false),
            // Whole seconds: the file system may have no finer resolution.
            (1_000 * SECOND, false),
            (999 * SECOND, false),
            (998 * SECOND, true),
            (1_000 * SECOND + 490_000_000, true),
            (1_000 * SECOND + 500_000_000, false),
        ] {
            let is_reliable = file(changed).has_reliable_times(FileClock(tick));
            assert_eq!(is_reliable, expected, "{changed}");
        }
        let future = FileIdentity {
            modified: tick + SECOND,
            ..file(1)
        };
        assert!(!future.has_reliable_times(FileClock(tick)));
    }

    #[test]
    fn freshly_written_file_is_racy_until_the_next_tick() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let before = FileClock::now();
        std::fs::write(&path, "x").unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let identity = FileIdentity::from_stat(&stat);
        assert!(!identity.has_reliable_times(before));
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !identity.has_reliable_times(FileClock::now()) {
            assert!(
                std::time::Instant::now() < end,
                "the clock does not advance"
            );
            std::thread::yield_now();
        }
    }
}
