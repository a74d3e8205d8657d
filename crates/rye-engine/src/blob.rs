//! Bytes that are too long for the record, kept under their hash.

mod references;

use std::fmt;
use std::sync::Arc;

use lillux::Hash;

use crate::BoxFuture;
use crate::tool::ToolContext;

pub use references::{referenced_blobs, required_blobs};

/// What the tool `read` calls a blob, before its hash.
pub const SCHEME: &str = "blob:";

/// Why bytes are not kept or not given back, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the blob store cannot be used: {0}")]
pub struct BlobError(pub String);

/// What a blob store gives, some time.
pub type BlobFuture<'a, T> = BoxFuture<'a, Result<T, BlobError>>;

/// Keeps bytes under their SHA-256. Whoever knows the hash can have them.
pub trait BlobStore: Send + Sync + 'static {
    /// Keeps them; durable when it returns. The same bytes again are the same blob.
    fn put(&self, bytes: Vec<u8>) -> BlobFuture<'_, Hash>;
    /// They, whole; none where nothing has this hash. What was damaged is an error.
    fn get<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, Option<Vec<u8>>>;
    /// Forgets all but these, and but what was put a short while ago: somebody may be about
    /// to refer to it.
    fn collect_garbage(&self, used: Vec<Hash>) -> BlobFuture<'_, ()>;
    /// Whether something has this hash.
    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool>;
}

impl fmt::Debug for dyn BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobStore")
    }
}

impl ToolContext {
    /// Where long output is kept, if this engine has such a place.
    pub fn blobs(&self) -> Option<Arc<dyn BlobStore>> {
        self.engine.upgrade()?.blobs.clone()
    }

    /// Keeps what is too long to be shown. None if that cannot be: what is shown is worth
    /// more than an error about the rest.
    pub(crate) async fn store_blob(&self, text: &str) -> Option<Hash> {
        // First: what is not kept is not copied either.
        let blobs = self.blobs()?;
        let text = self.redactor.redact(text).into_owned();
        blobs.put(text.into_bytes()).await.ok()
    }
}
