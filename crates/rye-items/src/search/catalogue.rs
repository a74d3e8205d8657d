//! All that is known of the spaces, brought up to date at each search.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::document::Reader;
use super::held::{Held, RootKey};
use super::hit::Answer;
use super::list::answer;
use super::query::Query;
use super::segment::Segment;
use super::store::Store;
use super::view::View;
use super::watch::{Watcher, lock};
use crate::own_folder::is_own_folder;
use crate::space::{Root, Spaces};

/// How many roots are held in memory: those of some twenty projects.
const MOST_ROOTS: usize = 64;
/// How many combinations of them.
const MOST_VIEWS: usize = 16;

/// Finds items. What it knows is never older than the search that asks.
///
/// One for a process: it may be used by several threads at once, and for
/// several projects.
#[derive(Debug)]
pub struct Catalogue {
    store: Option<Store>,
    /// None where every search looks at every file.
    watcher: Option<Mutex<Watcher>>,
    /// The one used last is the last.
    roots: Mutex<Vec<(RootKey, Arc<Mutex<Held>>)>>,
    views: Mutex<Vec<Arc<View>>>,
    numbers: AtomicU64,
}

impl Catalogue {
    /// For a process that searches once: each search looks at every file, and
    /// reads those that changed since the last search of any process.
    ///
    /// What was read is kept in the folder `cache/index`. Without a cache, or
    /// where it cannot be written or others can write to it, the first search reads
    /// every file.
    pub fn new(cache: Option<&Path>) -> Self {
        Self {
            store: cache.filter(|folder| is_own_folder(folder)).map(Store::new),
            watcher: None,
            roots: Mutex::default(),
            views: Mutex::default(),
            numbers: AtomicU64::new(0),
        }
    }

    /// For a process that stays: as [`new`](Self::new), but the first search also
    /// begins to watch the folders, and later ones look only where something
    /// happened.
    pub fn watching(cache: Option<&Path>) -> Self {
        Self {
            watcher: Watcher::new().map(Mutex::new),
            ..Self::new(cache)
        }
    }

    /// Answers a query over the items as they are now.
    pub fn search(&self, spaces: &Spaces, reader: &dyn Reader, query: &Query) -> Answer {
        if let Some(watcher) = &self.watcher {
            lock(watcher).listen();
        }
        let roots: Vec<_> = spaces.roots().collect();
        let (mut segments, mut unread) = (Vec::new(), Vec::new());
        for root in &roots {
            let held = self.held(root, reader);
            let mut held = lock(&held);
            segments.push(held.refresh(root, reader, self.store.as_ref(), self.watcher.as_ref()));
            unread.extend_from_slice(held.unread());
        }
        Answer {
            unread,
            ..answer(&self.view(segments), &roots, query)
        }
    }

    /// What is held of a root.
    fn held(&self, root: &Root, reader: &dyn Reader) -> Arc<Mutex<Held>> {
        let key = RootKey::of(root, reader);
        let mut roots = lock(&self.roots);
        let known = roots.iter().position(|(other, _)| *other == key);
        let entry = if let Some(at) = known {
            roots.remove(at)
        } else {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let held = Held::new(number, key.stored());
            (key, Arc::new(Mutex::new(held)))
        };
        let held = Arc::clone(&entry.1);
        roots.push(entry);
        let surplus = roots.len().saturating_sub(MOST_ROOTS);
        let evicted: Vec<_> = roots.drain(..surplus).collect();
        drop(roots);
        for (_, held) in evicted {
            lock(&held).evict(self.watcher.as_ref());
        }
        held
    }

    /// The segments as one; the same view for the same segments.
    fn view(&self, segments: Vec<Arc<Segment>>) -> Arc<View> {
        let is_of = |view: &Arc<View>| {
            let serials = |segments: &[Arc<Segment>]| -> Vec<_> {
                segments.iter().map(|segment| segment.serial()).collect()
            };
            serials(&view.segments) == serials(&segments)
        };
        let mut views = lock(&self.views);
        let view = match views.iter().position(is_of) {
            Some(at) => views.remove(at),
            None => Arc::new(View::of(segments)),
        };
        views.push(Arc::clone(&view));
        let surplus = views.len().saturating_sub(MOST_VIEWS);
        views.drain(..surplus);
        view
    }
}
