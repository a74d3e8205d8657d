//! Caches the segment of one root and decides when it is stale.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::Hash;
use parking_lot::Mutex;

use super::document::Reader;
use super::results::ScanError;
use super::scan::{ScannedItem, scan};
use super::segment::Segment;
use super::store::Store;
use super::update::update;
use super::watch::{RootId, Watcher, WatchingObserver};
use crate::space::{FileIdentity, Root};

/// How long inotify alone is trusted before the next full walk, and how long to wait
/// before watching is attempted again after it failed.
const MAX_WATCH_AGE: Duration = Duration::from_mins(1);

/// Identifies a root as seen by a particular reader version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootKey {
    /// Hash over the path or content hash of the root, and the reader version.
    name: Hash,
    location: RootLocation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RootLocation {
    /// Device and inode: a different directory may appear under the same path.
    Dir(Option<(u64, u64)>),
    /// Address: a program may embed several trees without a hash.
    Embedded { address: usize, hashed: bool },
}

impl RootKey {
    pub(super) fn new(root: &Root, reader: &dyn Reader) -> Self {
        let (kind, name, location): (&[u8], &[u8], _) = if let Some(embedded) = root.as_embedded() {
            let address = std::ptr::from_ref(embedded).addr();
            let hashed = !embedded.hash.is_empty();
            let location = RootLocation::Embedded { address, hashed };
            (b"embedded", embedded.hash.as_bytes(), location)
        } else {
            let stat = root.descriptor().and_then(|fd| rustix::fs::fstat(fd).ok());
            let location = RootLocation::Dir(stat.map(|stat| (stat.st_dev, stat.st_ino)));
            let path = root.as_dir().map(|path| path.as_os_str().as_bytes());
            (b"dir", path.unwrap_or_default(), location)
        };
        let version = reader.version();
        let parts = [b"rye index", kind, version.as_bytes(), name];
        Self {
            name: Hash::digest(parts.join(&0)),
            location,
        }
    }

    /// Whether other processes may use the segment. Without a content hash, different embedded
    /// trees could not be told apart.
    fn is_shared(&self) -> bool {
        !matches!(self.location, RootLocation::Embedded { hashed: false, .. })
    }
}

/// The cached segment of one root.
#[derive(Debug)]
pub(super) struct RootCache {
    id: RootId,
    key: RootKey,
    segment: Option<Arc<Segment>>,
    errors: Vec<ScanError>,
    /// Symlinked files, which can change without an event for their directory, as last
    /// seen.
    linked: Vec<(String, Option<FileIdentity>)>,
    /// Start of the walk since which the whole root has been watched.
    watched_since: Option<Instant>,
    /// When watching last failed.
    unwatchable_at: Option<Instant>,
    /// Set once the index has dropped this entry.
    evicted: bool,
}

impl RootCache {
    pub(super) fn new(id: RootId, key: RootKey) -> Self {
        Self {
            id,
            key,
            segment: None,
            errors: Vec::new(),
            linked: Vec::new(),
            watched_since: None,
            unwatchable_at: None,
            evicted: false,
        }
    }

    /// Files and directories that could not be read.
    pub(super) fn errors(&self) -> &[ScanError] {
        &self.errors
    }

    /// Returns an up-to-date segment.
    pub(super) fn refresh(
        &mut self,
        root: &Root,
        reader: &dyn Reader,
        store: Option<&Store>,
        watcher: Option<&Mutex<Watcher>>,
    ) -> Arc<Segment> {
        if let Some(segment) = &self.segment
            && self.is_current(root, watcher)
        {
            return Arc::clone(segment);
        }
        let store = store.filter(|_| self.key.is_shared());
        let key = self.key.name;
        let old = self.segment.clone();
        let old = old.or_else(|| store.and_then(|s| s.load(&key)).map(Arc::new));
        // Embedded content never changes under its hash.
        if let (Some(old), Some(_)) = (&old, root.as_embedded()) {
            self.segment = Some(Arc::clone(old));
            return Arc::clone(old);
        }
        let found = self.walk(root, reader, watcher);
        let (segment, is_new) = update(root, reader, old, &found);
        if is_new && let Some(store) = store {
            store.save(&key, &segment);
        }
        self.segment = Some(Arc::clone(&segment));
        segment
    }

    /// Whether nothing can have changed since the last walk.
    fn is_current(&self, root: &Root, watcher: Option<&Mutex<Watcher>>) -> bool {
        if root.as_embedded().is_some() {
            return true;
        }
        let (Some(watcher), Some(since)) = (watcher, self.watched_since) else {
            return false;
        };
        since.elapsed() < MAX_WATCH_AGE
            && !watcher.lock().has_changed(self.id)
            && self
                .linked
                .iter()
                .all(|(path, before)| root.stat(path).is_ok_and(|now| now == Some(*before)))
    }

    /// Walks the root and, if possible, starts watching it.
    fn walk(
        &mut self,
        root: &Root,
        reader: &dyn Reader,
        watcher: Option<&Mutex<Watcher>>,
    ) -> Vec<ScannedItem> {
        let started = Instant::now();
        self.watched_since = None;
        let failed_recently = self
            .unwatchable_at
            .is_some_and(|at| at.elapsed() < MAX_WATCH_AGE);
        let watching = watcher
            .filter(|_| !failed_recently && !self.evicted)
            .zip(root.descriptor());
        let watching =
            watching.map(|(watcher, top)| WatchingObserver::begin(watcher, self.id, top));
        let (found, errors) = match watching {
            Some(mut watching) => {
                let outcome = scan(root, reader, &mut watching);
                if watching.finish() {
                    self.watched_since = Some(started);
                    self.unwatchable_at = None;
                } else {
                    self.unwatchable_at = Some(started);
                }
                outcome
            }
            None => scan(root, reader, &mut ()),
        };
        let linked = found.iter().filter(|file| file.linked);
        self.linked = linked
            .map(|file| (file.path.clone(), file.identity))
            .collect();
        self.errors = errors;
        found
    }

    /// Releases the watches permanently.
    pub(super) fn evict(&mut self, watcher: Option<&Mutex<Watcher>>) {
        self.evicted = true;
        self.watched_since = None;
        if let Some(watcher) = watcher {
            watcher.lock().remove_root(self.id);
        }
    }
}
