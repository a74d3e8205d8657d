//! What is held of one root, and how it is known to be true still.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lillux::Hash;

use super::document::Reader;
use super::hit::Unread;
use super::scan::{Found, scan};
use super::segment::Segment;
use super::store::Store;
use super::update::update;
use super::watch::{RootNumber, Watcher, Watching, lock};
use crate::space::{FileIdentity, Root};

/// How long watches are relied upon alone, and how long it takes until they are
/// tried again where they were not to be had.
const RELIED_UPON: Duration = Duration::from_mins(1);

/// Which root, as which reader reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootKey {
    /// The path or the hash of the root, and the version of the reader.
    name: Hash,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Device and inode: under the same path there may be another folder later.
    Folder(Option<(u64, u64)>),
    /// Address: a program may embed several that have no hash.
    Embedded { address: usize, hashed: bool },
}

impl RootKey {
    pub(super) fn of(root: &Root, reader: &dyn Reader) -> Self {
        let (kind, name, place): (&[u8], &[u8], _) = if let Some(embedded) = root.as_embedded() {
            let address = std::ptr::from_ref(embedded).addr();
            let hashed = !embedded.hash.is_empty();
            let place = Place::Embedded { address, hashed };
            (b"embedded", embedded.hash.as_bytes(), place)
        } else {
            let stat = root.descriptor().and_then(|fd| rustix::fs::fstat(fd).ok());
            let place = Place::Folder(stat.map(|stat| (stat.st_dev, stat.st_ino)));
            let path = root.as_folder().map(|path| path.as_os_str().as_bytes());
            (b"folder", path.unwrap_or_default(), place)
        };
        let version = reader.version();
        let parts = [b"rye index", kind, version.as_bytes(), name];
        Self {
            name: Hash::of(parts.join(&0)),
            place,
        }
    }

    /// What its segment is stored under, if it can be.
    pub(super) fn stored(&self) -> Stored {
        match self.place {
            Place::Embedded { hashed: false, .. } => Stored::Never(self.name),
            _ => Stored::Under(self.name),
        }
    }
}

/// Whether a segment can be kept for other processes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stored {
    Under(Hash),
    /// Nothing would tell one state from another.
    Never(Hash),
}

impl Stored {
    pub(super) fn key(&self) -> &Hash {
        match self {
            Self::Under(key) | Self::Never(key) => key,
        }
    }
}

/// What is known of a root.
#[derive(Debug)]
pub(super) struct Held {
    number: RootNumber,
    stored: Stored,
    segment: Option<Arc<Segment>>,
    unread: Vec<Unread>,
    /// Files that can change without their folder being told, as they were.
    linked: Vec<(String, Option<FileIdentity>)>,
    /// When the walk began since which everything is watched.
    watched_since: Option<Instant>,
    /// When watching was not possible.
    unwatchable_at: Option<Instant>,
    /// The catalogue does not hold it any more.
    evicted: bool,
}

impl Held {
    pub(super) fn new(number: RootNumber, stored: Stored) -> Self {
        Self {
            number,
            stored,
            segment: None,
            unread: Vec::new(),
            linked: Vec::new(),
            watched_since: None,
            unwatchable_at: None,
            evicted: false,
        }
    }

    /// What could not be looked at.
    pub(super) fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// The segment of the root as it is now.
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
        let store = store.filter(|_| matches!(self.stored, Stored::Under(_)));
        let key = *self.stored.key();
        let old = self.segment.clone();
        let old = old.or_else(|| store.and_then(|s| s.load(&key)).map(Arc::new));
        // What is embedded under a hash does not change under that hash.
        if let (Some(old), Some(_)) = (&old, root.as_embedded()) {
            self.segment = Some(Arc::clone(old));
            return Arc::clone(old);
        }
        let found = self.walk(root, reader, watcher);
        let (segment, is_new) = update(&key, root, reader, old, &found, processors());
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
        since.elapsed() < RELIED_UPON
            && !lock(watcher).has_changed(self.number)
            && self
                .linked
                .iter()
                .all(|(path, before)| root.look(path).is_ok_and(|now| now == Some(*before)))
    }

    /// Walks the root, and watches it from now on where that is possible.
    fn walk(
        &mut self,
        root: &Root,
        reader: &dyn Reader,
        watcher: Option<&Mutex<Watcher>>,
    ) -> Vec<Found> {
        let began = Instant::now();
        self.watched_since = None;
        let in_vain = self
            .unwatchable_at
            .is_some_and(|at| at.elapsed() < RELIED_UPON);
        let watching = watcher
            .filter(|_| !in_vain && !self.evicted)
            .zip(root.descriptor());
        let watching = watching.map(|(watcher, top)| Watching::begin(watcher, self.number, top));
        let (found, unread) = match watching {
            Some(mut watching) => {
                let outcome = scan(root, reader, &mut watching);
                if watching.finish() {
                    self.watched_since = Some(began);
                    self.unwatchable_at = None;
                } else {
                    self.unwatchable_at = Some(began);
                }
                outcome
            }
            None => scan(root, reader, &mut ()),
        };
        let linked = found.iter().filter(|file| file.linked);
        self.linked = linked
            .map(|file| (file.path.clone(), file.identity))
            .collect();
        self.unread = unread;
        found
    }

    /// Gives up the watches for good.
    pub(super) fn evict(&mut self, watcher: Option<&Mutex<Watcher>>) {
        self.evicted = true;
        self.watched_since = None;
        if let Some(watcher) = watcher {
            lock(watcher).forget(self.number);
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
