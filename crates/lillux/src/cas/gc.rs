//! Removing what nothing refers to any more.
//!
//! First mark, reading only; then sweep, shard by shard. What makes it safe
//! beside puts that go on meanwhile:
//!
//! - The line between old and recent is drawn once, before marking. Whatever
//!   is put later is recent, whether the marking saw it or not.
//! - A put of content that is already there sets its time anew. The look at a
//!   file's time and its removal happen under the exclusive lock; the opening
//!   of a present file and the setting of its time under the shared one. So
//!   either the put comes first and the sweep sees a recent file, or the sweep
//!   comes first and the put sees none, and writes it.
//! - The exclusive lock is held for one shard at a time, and puts hold theirs
//!   for a few system calls and never while they write or sync: neither keeps
//!   the other waiting.
//!
//! Removals are not synced. A name that comes back after a crash is a whole
//! file again, and as removable as before. Empty shards stay: removing one
//! could pull it from under a put, and there are at most 65,536 of a kind.

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

/// How long content stays without anything referring to it, unless told
/// otherwise: the time a writer has to record what it put.
pub const DEFAULT_GRACE: Duration = Duration::from_hours(1);

/// How to collect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcOptions {
    /// What was put, or put again, within this time stays.
    pub grace: Duration,
    /// Find out what would be removed, and remove nothing.
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

/// What a collection did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// How many files stay.
    pub kept: u64,
    /// The files that went, in the order of their names, objects first.
    pub removed: Vec<Hash>,
    /// How many bytes these held.
    pub freed: u64,
    /// How many leftover temporary files went.
    pub temporary: u64,
}

impl Cas {
    /// Removes content that is neither reachable nor recent, and temporary
    /// files that nobody writes to any more.
    ///
    /// Reachable are the roots, the recent objects, and what a reachable
    /// object refers to: by any string in it, keys included, that is the hash
    /// of something in the store. Blobs refer to nothing.
    ///
    /// A writer is safe that puts what it refers to before it refers to it
    /// (a put of what is there counts) and has the whole recorded among the
    /// roots within the grace time.
    ///
    /// If a root is missing or a reachable object cannot be read, nobody knows
    /// what is reachable, and nothing is removed.
    pub fn gc(
        &self,
        roots: impl IntoIterator<Item = Hash>,
        options: GcOptions,
    ) -> Result<GcReport, CasError> {
        let _alone = self.lock(GC_LOCK, FlockOperation::LockExclusive)?;
        let age = Age::line(options.grace);
        let reachable = self
            .mark(roots, age)
            .map_err(|error| CasError::GcAborted(Box::new(error)))?;
        let mut report = GcReport::default();
        for kind in Kind::ALL {
            for shard in &self.shards(kind)?.entries {
                self.sweep(kind, shard, &reachable, age, options.dry_run, &mut report)?;
            }
        }
        self.sweep_temporary(age, options.dry_run, &mut report)?;
        Ok(report)
    }

    fn mark(
        &self,
        roots: impl IntoIterator<Item = Hash>,
        age: Age,
    ) -> Result<HashSet<Hash>, CasError> {
        let mut reachable = HashSet::new();
        let mut unread = self.recent_objects(age)?;
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

    /// What stays because it is recent keeps what it refers to: its writer is
    /// about to record it.
    fn recent_objects(&self, age: Age) -> Result<Vec<Hash>, CasError> {
        let mut recent = Vec::new();
        for shard in &self.shards(Kind::Object)?.entries {
            for hash in self.files(Kind::Object, shard)?.entries {
                if age.is_recent(&self.path_of(Kind::Object, &hash))? {
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
        age: Age,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<(), CasError> {
        let _lock = self.lock_unless(dry_run)?;
        for hash in self.files(kind, shard)?.entries {
            let path = self.path_of(kind, &hash);
            if reachable.contains(&hash) || age.is_recent(&path)? {
                report.kept += 1;
                continue;
            }
            report.freed += fs::metadata(&path).at("look at", &path)?.len();
            if !dry_run {
                fs::remove_file(&path).at("remove", &path)?;
            }
            report.removed.push(hash);
        }
        Ok(())
    }

    fn sweep_temporary(
        &self,
        age: Age,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<(), CasError> {
        let _lock = self.lock_unless(dry_run)?;
        let is_ours = |name: &str, path: &Path| {
            (name.starts_with(TEMP_PREFIX) && path.is_file()).then(|| path.to_owned())
        };
        for path in list(&self.root.join(TMP), is_ours)?.entries {
            let file = match File::open(&path) {
                // Finished, or given up, since the folder was read.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.at("read", &path)?,
            };
            let in_use = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
            if in_use || age.is_recent(&path)? {
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

/// The line between old and recent; none where it lies before all time.
#[derive(Clone, Copy)]
struct Age(Option<SystemTime>);

impl Age {
    fn line(grace: Duration) -> Self {
        Self(SystemTime::now().checked_sub(grace))
    }

    /// A time in the future is recent: clocks are set back at times.
    fn is_recent(self, path: &Path) -> Result<bool, PathError> {
        let modified = fs::metadata(path)
            .and_then(|m| m.modified())
            .at("look at", path)?;
        Ok(self.0.is_none_or(|line| modified >= line))
    }
}
