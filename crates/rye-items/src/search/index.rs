//! The search index: one cached segment per root, refreshed before each search.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::document::Reader;
use super::evaluate::evaluate;
use super::query::Query;
use super::results::SearchResults;
use super::root_cache::{RootCache, RootKey};
use super::segment::Segment;
use super::store::Store;
use super::view::View;
use super::watch::Watcher;
use crate::owner_only_dir::is_owner_only_dir;
use crate::space::{Root, Spaces};

/// Roots kept in memory: enough for about twenty projects.
const MAX_ROOTS: usize = 64;
/// Combinations of roots kept in memory.
const MAX_VIEWS: usize = 16;

/// Searches items. Results always reflect the files as they are at the time of the
/// search.
///
/// Create one per process and share it: it is safe to use from several threads and for
/// several projects.
#[derive(Debug)]
pub struct SearchIndex {
    store: Option<Store>,
    /// `None` if every search examines every file.
    watcher: Option<Mutex<Watcher>>,
    /// In order of use, most recent last.
    roots: Mutex<Vec<(RootKey, Arc<Mutex<RootCache>>)>>,
    views: Mutex<Vec<Arc<View>>>,
    next_root_id: AtomicU64,
}

impl SearchIndex {
    /// For one-shot processes: each search examines every file and reads those that
    /// changed since the last search of any process.
    ///
    /// Segments are cached in `cache/index`. Without a cache, or if the directory is not
    /// writable or is writable for other users, the first search reads every file.
    pub fn new(cache: Option<&Path>) -> Self {
        Self {
            store: cache.filter(|dir| is_owner_only_dir(dir)).map(Store::new),
            watcher: None,
            roots: Mutex::default(),
            views: Mutex::default(),
            next_root_id: AtomicU64::new(0),
        }
    }

    /// For long-running processes: like [`new`](Self::new), but the first search also
    /// starts watching the directories, and later searches only examine roots that changed.
    pub fn with_watcher(cache: Option<&Path>) -> Self {
        Self {
            watcher: Watcher::new().map(Mutex::new),
            ..Self::new(cache)
        }
    }

    /// Runs a query against the items as they are now.
    pub fn search(&self, spaces: &Spaces, reader: &dyn Reader, query: &Query) -> SearchResults {
        if let Some(watcher) = &self.watcher {
            watcher.lock().drain_events();
        }
        let roots: Vec<_> = spaces.roots().collect();
        let (mut segments, mut errors) = (Vec::new(), Vec::new());
        for root in &roots {
            let cached = self.root_cache(root, reader);
            let mut cached = cached.lock();
            segments.push(cached.refresh(root, reader, self.store.as_ref(), self.watcher.as_ref()));
            errors.extend_from_slice(cached.errors());
        }
        SearchResults {
            errors,
            ..evaluate(&self.view(segments), &roots, query)
        }
    }

    /// Returns the cache entry of a root, creating it if needed and evicting the
    /// oldest.
    fn root_cache(&self, root: &Root, reader: &dyn Reader) -> Arc<Mutex<RootCache>> {
        let key = RootKey::new(root, reader);
        let mut roots = self.roots.lock();
        let known = roots.iter().position(|(other, _)| *other == key);
        let entry = if let Some(at) = known {
            roots.remove(at)
        } else {
            let number = self.next_root_id.fetch_add(1, Ordering::Relaxed);
            let cached = RootCache::new(number, key.clone());
            (key, Arc::new(Mutex::new(cached)))
        };
        let cached = Arc::clone(&entry.1);
        roots.push(entry);
        let surplus = roots.len().saturating_sub(MAX_ROOTS);
        let evicted: Vec<_> = roots.drain(..surplus).collect();
        drop(roots);
        for (_, cached) in evicted {
            cached.lock().evict(self.watcher.as_ref());
        }
        cached
    }

    /// Returns the combined view of the segments, reusing it if the segments are the
    /// same.
    fn view(&self, segments: Vec<Arc<Segment>>) -> Arc<View> {
        let has_segments = |view: &Arc<View>| {
            let pairs = view.segments.iter().zip(&segments);
            view.segments.len() == segments.len()
                && pairs.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let mut views = self.views.lock();
        let view = match views.iter().position(has_segments) {
            Some(at) => views.remove(at),
            None => Arc::new(View::new(segments)),
        };
        views.push(Arc::clone(&view));
        let surplus = views.len().saturating_sub(MAX_VIEWS);
        views.drain(..surplus);
        view
    }
}
