//! Blob stores: files under their hash, or in memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lillux::Hash;
use lillux::cas::{Cas, CasError, DEFAULT_GRACE, GcOptions};
use rye_engine::blob::{BlobError, BlobFuture, BlobStore};
use tokio::task::spawn_blocking;

/// Blobs in a folder, one file each, which is made when there is something to keep. Any
/// number of processes may use one folder.
#[derive(Debug, Clone)]
pub struct FileBlobs {
    root: Arc<Path>,
    grace: Duration,
}

impl FileBlobs {
    /// Those in this folder, which need not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into().into();
        let grace = DEFAULT_GRACE;
        Self { root, grace }
    }

    /// What was put within this time is never collected; an hour unless given.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Does what waits for a disk where nobody else waits.
    fn blocking<'a, T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, CasError> + Send + 'static,
    ) -> BlobFuture<'a, T> {
        let root = Arc::clone(&self.root);
        Box::pin(async move {
            let done = spawn_blocking(move || work(&root)).await;
            let done = done.map_err(|error| BlobError(error.to_string()))?;
            done.map_err(|error| BlobError(error.to_string()))
        })
    }
}

/// What is not there is not there, also where nothing was ever kept.
fn found<T>(outcome: Result<T, CasError>) -> Result<Option<T>, CasError> {
    match outcome {
        Ok(it) => Ok(Some(it)),
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
        self.blocking(move |root| found(Cas::open_existing(root).and_then(|cas| cas.get(&hash))))
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
            // What is gone already cannot be kept.
            let mut there = Vec::new();
            for hash in used {
                if cas.has(&hash)? {
                    there.push(hash);
                }
            }
            cas.gc(there, options).map(drop)
        })
    }

    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool> {
        let hash = *hash;
        self.blocking(move |root| {
            let has = Cas::open_existing(root).and_then(|cas| cas.has(&hash));
            Ok(found(has)?.unwrap_or_default())
        })
    }
}

/// Blobs in memory, gone with the process. Cheap to clone: all clones are one store.
#[derive(Debug, Clone, Default)]
pub struct MemoryBlobs {
    all: Arc<Mutex<HashMap<Hash, Vec<u8>>>>,
}

impl MemoryBlobs {
    /// One that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Hash, Vec<u8>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now<'a, T: Send + 'a>(it: T) -> BlobFuture<'a, T> {
    Box::pin(std::future::ready(Ok(it)))
}

impl BlobStore for MemoryBlobs {
    fn put(&self, bytes: Vec<u8>) -> BlobFuture<'_, Hash> {
        let hash = Hash::digest(&bytes);
        self.all().insert(hash, bytes);
        now(hash)
    }

    fn get<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, Option<Vec<u8>>> {
        now(self.all().get(hash).cloned())
    }

    fn collect_garbage(&self, used: Vec<Hash>) -> BlobFuture<'_, ()> {
        self.all().retain(|hash, _| used.contains(hash));
        now(())
    }

    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool> {
        now(self.all().contains_key(hash))
    }
}
