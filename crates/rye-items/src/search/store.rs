//! Segments on disk: a cache that may be missing, damaged or read-only.
//!
//! A segment is written to a temporary file and renamed, so readers see complete files
//! and the last writer wins. Nothing is synced: a file that a power failure truncated
//! fails its checksum and is rebuilt.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lillux::Hash;
use rustix::fs::OFlags;

use super::segment::Segment;

/// The subdirectory of the cache.
const SUBDIR: &str = "index";
/// Segments unused for this long are deleted.
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
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
        if self.try_save(key, segment).is_some() {
            self.sweep();
        }
    }

    fn try_save(&self, key: &Hash, segment: &Segment) -> Option<()> {
        let mut dir = DirBuilder::new();
        dir.recursive(true).mode(0o700);
        dir.create(&self.dir).ok()?;
        // Created with mode 0600, and deleted if anything fails.
        let mut file = tempfile::Builder::new()
            .prefix(".tmp-")
            .tempfile_in(&self.dir)
            .ok()?;
        file.write_all(&segment.to_bytes(key)).ok()?;
        file.persist(self.path(key)).ok().map(drop)
    }

    fn path(&self, key: &Hash) -> PathBuf {
        self.dir.join(key.to_hex())
    }

    /// Deletes segments that are no longer used and temporary files of killed writers.
    fn sweep(&self) {
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|there| there.modified()).ok();
            if modified.is_some_and(|time| is_older(time, now, MAX_AGE)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Records the last use in the modification time of the file.
fn record_use(file: &File, modified: Option<SystemTime>) {
    let now = SystemTime::now();
    if modified.is_none_or(|time| is_older(time, now, USE_GRANULARITY)) {
        let _ = file.set_times(FileTimes::new().set_modified(now));
    }
}

fn is_older(time: SystemTime, now: SystemTime, age: Duration) -> bool {
    now.duration_since(time).is_ok_and(|passed| passed > age)
}
