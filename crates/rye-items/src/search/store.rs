//! Segments on the disk: a cache, which may be missing, damaged or read-only.
//!
//! A segment is written under a name of its own and then renamed, so a reader
//! sees a whole one, and of two writers the later one wins. Nothing is flushed:
//! a file that a power cut left half is noticed and made again.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lillux::Hash;
use rustix::fs::OFlags;

use super::segment::Segment;

/// The folder within the cache.
const FOLDER: &str = "index";
/// A segment that was not used for so long is deleted.
const UNUSED: Duration = Duration::from_hours(30 * 24);
/// How exactly the last use is noted down.
const NOTED: Duration = Duration::from_hours(24);

/// Where segments are kept.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) fn new(cache: &Path) -> Self {
        Self {
            folder: cache.join(FOLDER),
        }
    }

    /// The segment that was kept under a key, if it is there, ours and whole.
    pub(super) fn load(&self, key: &Hash) -> Option<Segment> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).ok()?;
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .custom_flags(flags)
            .open(self.path(key))
            .ok()?;
        let there = file.metadata().ok()?;
        // What somebody else can write to would be their word about our items.
        let ours = there.uid() == rustix::process::geteuid().as_raw();
        if !there.is_file() || !ours || there.mode() & 0o022 != 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(there.len()).ok()? + 1);
        file.read_to_end(&mut bytes).ok()?;
        let segment = Segment::open(bytes, key)?;
        note_use(&file, there.modified().ok());
        Some(segment)
    }

    /// Keeps a segment. Where that is not possible, the next search takes longer.
    pub(super) fn save(&self, key: &Hash, segment: &Segment) {
        if self.try_save(key, segment).is_some() {
            self.sweep();
        }
    }

    fn try_save(&self, key: &Hash, segment: &Segment) -> Option<()> {
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder.create(&self.folder).ok()?;
        // Mode 0600, and gone again if anything fails.
        let mut file = tempfile::Builder::new()
            .prefix(".tmp-")
            .tempfile_in(&self.folder)
            .ok()?;
        file.write_all(segment.bytes()).ok()?;
        file.persist(self.path(key)).ok().map(drop)
    }

    fn path(&self, key: &Hash) -> PathBuf {
        self.folder.join(key.to_hex())
    }

    /// Deletes what nobody used for long, and what writers left that were killed.
    fn sweep(&self) {
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|there| there.modified()).ok();
            if modified.is_some_and(|time| is_older(time, now, UNUSED)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The time of a segment's file is that of its last use.
fn note_use(file: &File, modified: Option<SystemTime>) {
    let now = SystemTime::now();
    if modified.is_none_or(|time| is_older(time, now, NOTED)) {
        let _ = file.set_times(FileTimes::new().set_modified(now));
    }
}

fn is_older(time: SystemTime, now: SystemTime, age: Duration) -> bool {
    now.duration_since(time).is_ok_and(|passed| passed > age)
}
