//! Blob stores: content-addressed files, or memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use lillux::cas::{Cas, CasError, DEFAULT_GRACE, GcOptions};
use parking_lot::{Mutex, MutexGuard};
use rye_engine::blob::{BlobError, BlobFuture, BlobStore};
use tokio::task::spawn_blocking;

/// Blobs in a directory, one file each. The directory is created with the first blob. Several
/// processes can share it.
#[derive(Debug, Clone)]
pub struct FileBlobs {
    root: Arc<Path>,
    grace: Duration,
}

impl FileBlobs {
    /// A blob store in this directory, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into().into();
        let grace = DEFAULT_GRACE;
        Self { root, grace }
    }

    /// Sets the minimum age of a blob before it can be collected. The default is an hour.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs disk I/O on a blocking thread.
    fn blocking<'a, T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, CasError> + Send + 'static,
    ) -> BlobFuture<'a, T> {
        let root = Arc::clone(&self.root);
        Box::pin(async move {
            let result = spawn_blocking(move || work(&root)).await;
            let result = result.map_err(|error| BlobError(error.to_string()))?;
            result.map_err(|error| BlobError(error.to_string()))
        })
    }
}

/// Turns a missing blob or a missing store into `None`.
fn optional<T>(result: Result<T, CasError>) -> Result<Option<T>, CasError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(CasError::NotFound { .. } | CasError::NoStore { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl BlobStore for FileBlobs {
    fn put(&self, bytes: Vec<u8>) -> BlobFuture<'_, Hash> {
        self.blocking(move |root| Ok(Cas::open(root)?.put(&bytes)?.hash))
    }

    fn get<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, Option<Vec<u8>>> {
        let hash = *hash;
        self.blocking(move |root| optional(Cas::open_existing(root).and_then(|cas| cas.get(&hash))))
    }

    fn collect_garbage(&self, used: Vec<Hash>) -> BlobFuture<'_, ()> {
        let options = GcOptions {
            grace: self.grace,
            dry_run: false,
        };
        self.blocking(move |root| {
            let cas = match Cas::open_existing(root) {
                Err(CasError::NoStore { .. }) => return Ok(()),
                cas => cas?,
            };
            // The garbage collector rejects roots that do not exist.
            let mut roots = Vec::new();
            for hash in used {
                if cas.has(&hash)? {
                    roots.push(hash);
                }
            }
            cas.gc(roots, options).map(drop)
        })
    }

    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool> {
        let hash = *hash;
        self.blocking(move |root| {
            let has = Cas::open_existing(root).and_then(|cas| cas.has(&hash));
            Ok(optional(has)?.unwrap_or_default())
        })
    }
}

/// Blobs in memory. All clones share one store.
#[derive(Debug, Clone, Default)]
pub struct MemoryBlobs {
    blobs: Arc<Mutex<HashMap<Hash, Vec<u8>>>>,
}

impl MemoryBlobs {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hash, Vec<u8>>> {
        self.blobs.lock()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BlobFuture<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl BlobStore for MemoryBlobs {
    fn put(&self, bytes: Vec<u8>) -> BlobFuture<'_, Hash> {
        let hash = Hash::digest(&bytes);
        self.lock().insert(hash, bytes);
        ready(hash)
    }

    fn get<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, Option<Vec<u8>>> {
        ready(self.lock().get(hash).cloned())
    }

    fn collect_garbage(&self, used: Vec<Hash>) -> BlobFuture<'_, ()> {
        self.lock().retain(|hash, _| used.contains(hash));
        ready(())
    }

    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool> {
        ready(self.lock().contains_key(hash))
    }
}
