//! Garbage collection: removes unreachable content.
//!
//! The collection first marks, reading only, and then sweeps shard by shard. It is safe while
//! puts run concurrently:
//!
//! - The cutoff between old and recent is fixed before marking. Content that is put later is
//!   recent, whether or not the marking saw it.
//! - A put of existing content updates the file's time. The sweep checks a file's time and
//!   removes it under the exclusive lock; a put opens an existing file and updates its time
//!   under the shared lock. So either the put is first and the sweep sees a recent file, or
//!   the sweep is first and the put sees no file and writes it.
//! - The sweep holds the exclusive lock for one shard at a time, and puts hold the shared lock
//!   for a few system calls, never while they write or sync. So neither waits long.
//!
//! Removals are not synced: a file that reappears after a crash is complete and can be removed
//! again. Empty shards stay, because removing one could interfere with a put, and there are at
//! most 65,536 of each kind.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use super::walk::list;
use super::write::TEMP_PREFIX;
use super::{Cas, CasError, GC_LOCK, Kind, LOCK, TMP};
use crate::error::PathContext as _;
use crate::{Hash, PathError, canonical};

/// Default time for which unreachable content is kept, so that a writer can record what it put.
pub const DEFAULT_GRACE: Duration = Duration::from_hours(1);

/// Options of [`Cas::gc`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcOptions {
    /// Content that was put, or put again, within this time is kept.
    pub grace: Duration,
    /// Only report what would be removed.
    pub dry_run: bool,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self {
            grace: DEFAULT_GRACE,
            dry_run: false,
        }
    }
}

/// Result of [`Cas::gc`]; of a dry run, what would happen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Number of files that were kept.
    pub kept: u64,
    /// Hashes of the removed files, sorted, objects first.
    pub removed: Vec<Hash>,
    /// Total size of the removed files in bytes.
    pub freed: u64,
    /// Number of leftover temporary files that were removed.
    pub temporary: u64,
}

impl Cas {
    /// Removes content that is neither reachable nor recent, and abandoned temporary files.
    ///
    /// The roots, the recent objects and everything they refer to are reachable. An object
    /// refers to content if one of its strings or keys is the hash of the content. Blobs refer
    /// to nothing.
    ///
    /// A writer does not lose content if it puts everything that an object refers to before the
    /// object (putting existing content again counts) and records the object as a root within
    /// the grace time.
    ///
    /// If a root is missing or a reachable object cannot be read, the set of reachable content
    /// is unknown and nothing is removed.
    pub fn gc(
        &self,
        roots: impl IntoIterator<Item = Hash>,
        options: GcOptions,
    ) -> Result<GcReport, CasError> {
        let _lock = self.lock(GC_LOCK, FlockOperation::LockExclusive)?;
        let cutoff = Cutoff::new(options.grace);
        let reachable = self
            .mark(roots, cutoff)
            .map_err(|error| CasError::GcAborted(Box::new(error)))?;
        let mut report = GcReport::default();
        for kind in Kind::ALL {
            for shard in &self.shards(kind)?.entries {
                self.sweep(
                    kind,
                    shard,
                    &reachable,
                    cutoff,
                    options.dry_run,
                    &mut report,
                )?;
            }
        }
        self.sweep_temporary(cutoff, options.dry_run, &mut report)?;
        Ok(report)
    }

    fn mark(
        &self,
        roots: impl IntoIterator<Item = Hash>,
        cutoff: Cutoff,
    ) -> Result<HashSet<Hash>, CasError> {
        let mut reachable = HashSet::new();
        let mut unread = self.recent_objects(cutoff)?;
        for root in roots {
            if !self.has(&root)? {
                return Err(self.not_found(&root));
            }
            unread.push(root);
        }
        while let Some(hash) = unread.pop() {
            if !reachable.insert(hash) {
                continue;
            }
            let Some(text) = self.object_text(&hash)? else {
                continue;
            };
            for string in canonical::strings(&text) {
                let referred = std::str::from_utf8(string)
                    .ok()
                    .and_then(|s| s.parse().ok());
                if let Some(referred) = referred
                    && !reachable.contains(&referred)
                    && self.has(&referred)?
                {
                    unread.push(referred);
                }
            }
        }
        Ok(reachable)
    }

    /// Recent objects, which are roots too: their writers are about to record them.
    fn recent_objects(&self, cutoff: Cutoff) -> Result<Vec<Hash>, CasError> {
        let mut recent = Vec::new();
        for shard in &self.shards(Kind::Object)?.entries {
            for hash in self.files(Kind::Object, shard)?.entries {
                if cutoff.is_recent(&self.path_of(Kind::Object, &hash))? {
                    recent.push(hash);
                }
            }
        }
        Ok(recent)
    }

    fn sweep(
        &self,
        kind: Kind,
        shard: &Path,
        reachable: &HashSet<Hash>,
        cutoff: Cutoff,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<(), CasError> {
        let _lock = self.lock_unless(dry_run)?;
        for hash in self.files(kind, shard)?.entries {
            let path = self.path_of(kind, &hash);
            if reachable.contains(&hash) || cutoff.is_recent(&path)? {
                report.kept += 1;
                continue;
            }
            let metadata = fs::metadata(&path).at("read the metadata of", &path)?;
            report.freed += metadata.len();
            if !dry_run {
                fs::remove_file(&path).at("remove", &path)?;
            }
            report.removed.push(hash);
        }
        Ok(())
    }

    fn sweep_temporary(
        &self,
        cutoff: Cutoff,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<(), CasError> {
        let _lock = self.lock_unless(dry_run)?;
        let is_ours = |name: &str, path: &Path| {
            (name.starts_with(TEMP_PREFIX) && path.is_file()).then(|| path.to_owned())
        };
        for path in list(&self.root.join(TMP), is_ours)?.entries {
            let file = match File::open(&path) {
                // Renamed or removed by its writer since the directory was read.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.at("read", &path)?,
            };
            let in_use = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
            if in_use || cutoff.is_recent(&path)? {
                continue;
            }
            if !dry_run {
                fs::remove_file(&path).at("remove", &path)?;
            }
            report.temporary += 1;
        }
        Ok(())
    }

    fn lock_unless(&self, dry_run: bool) -> Result<Option<File>, PathError> {
        if dry_run {
            return Ok(None);
        }
        self.lock(LOCK, FlockOperation::LockExclusive).map(Some)
    }
}

/// The time before which files are old; `None` if the grace time exceeds the clock's range.
#[derive(Clone, Copy)]
struct Cutoff(Option<SystemTime>);

impl Cutoff {
    fn new(grace: Duration) -> Self {
        Self(SystemTime::now().checked_sub(grace))
    }

    /// A modification time in the future is recent, since the clock may have been set back.
    fn is_recent(self, path: &Path) -> Result<bool, PathError> {
        let modified = fs::metadata(path)
            .and_then(|m| m.modified())
            .at("read the metadata of", path)?;
        Ok(self.0.is_none_or(|cutoff| modified >= cutoff))
    }
}
