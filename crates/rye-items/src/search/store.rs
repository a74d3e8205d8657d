//! Segments on disk: a cache that may be missing, damaged or read-only.
//!
//! A segment is written to a temporary file and renamed, so readers see complete files
//! and the last writer wins. Nothing is synced: a file that a power failure truncated
//! fails its checksum and is rebuilt.

use std::fs::{File, FileTimes, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lillux::Hash;
use rustix::fs::OFlags;

use super::segment::Segment;
use crate::owner_only_dir::{is_older, write_cache_file};

/// The subdirectory of the cache.
const SUBDIR: &str = "index";
/// Granularity of the recorded time of last use.
const USE_GRANULARITY: Duration = Duration::from_hours(24);

/// The on-disk segment cache.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
}

impl Store {
    pub(super) fn new(cache: &Path) -> Self {
        Self {
            dir: cache.join(SUBDIR),
        }
    }

    /// Loads a segment if the file exists, is private to this user and is intact.
    pub(super) fn load(&self, key: &Hash) -> Option<Segment> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).ok()?;
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .custom_flags(flags)
            .open(self.path(key))
            .ok()?;
        let there = file.metadata().ok()?;
        // A file that other users can write could contain forged records.
        let ours = there.uid() == rustix::process::geteuid().as_raw();
        if !there.is_file() || !ours || there.mode() & 0o022 != 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(there.len()).ok()? + 1);
        file.read_to_end(&mut bytes).ok()?;
        let segment = Segment::from_bytes(&bytes, key)?;
        record_use(&file, there.modified().ok());
        Some(segment)
    }

    /// Stores a segment. Errors are ignored; they only make the next search slower.
    pub(super) fn save(&self, key: &Hash, segment: &Segment) {
        let _ = write_cache_file(&self.path(key), &segment.to_bytes(key));
    }

    fn path(&self, key: &Hash) -> PathBuf {
        self.dir.join(key.to_hex())
    }
}

/// Records the last use in the modification time of the file.
fn record_use(file: &File, modified: Option<SystemTime>) {
    let now = SystemTime::now();
    if modified.is_none_or(|time| is_older(time, now, USE_GRANULARITY)) {
        let _ = file.set_times(FileTimes::new().set_modified(now));
    }
}
