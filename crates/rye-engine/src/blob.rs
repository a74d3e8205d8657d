//! Content-addressed storage for data that is too long for the record.

mod references;

use std::fmt;
use std::sync::Arc;

use lillux::Hash;

use crate::BoxFuture;
use crate::tool::ToolContext;

pub(crate) use references::{file_blobs, parse_address};
pub use references::{referenced_blobs, required_blobs};

/// Prefix of blob addresses, followed by the hash.
pub const SCHEME: &str = "blob:";

/// Key of a tool result's data: address of the blob with the complete output.
pub const FULL_OUTPUT: &str = "full_output";

/// Error of the blob store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot access the blob store: {0}")]
pub struct BlobError(pub String);

/// Future of a blob store operation.
pub type BlobFuture<'a, T> = BoxFuture<'a, Result<T, BlobError>>;

/// Stores bytes under their SHA-256. Anyone who knows the hash can read them.
pub trait BlobStore: Send + Sync + 'static {
    /// Stores bytes durably. Storing the same bytes again has no effect.
    fn put(&self, bytes: Vec<u8>) -> BlobFuture<'_, Hash>;
    /// Reads a blob; `None` if it does not exist, an error if it is damaged.
    fn get<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, Option<Vec<u8>>>;
    /// Removes all blobs except these and recently stored ones, which may not be referenced yet.
    fn collect_garbage(&self, used: Vec<Hash>) -> BlobFuture<'_, ()>;
    /// Whether a blob exists.
    fn contains<'a>(&'a self, hash: &'a Hash) -> BlobFuture<'a, bool>;
}

impl fmt::Debug for dyn BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobStore")
    }
}

impl ToolContext {
    /// The blob store of the engine, if any.
    pub fn blobs(&self) -> Option<Arc<dyn BlobStore>> {
        self.engine.upgrade()?.blobs.clone()
    }

    /// Stores a redacted text as a blob. Returns `None` on failure, because the truncated output is
    /// more useful than an error.
    pub async fn store_blob(&self, text: &str) -> Option<Hash> {
        // Check first, to avoid a needless copy.
        let blobs = self.blobs()?;
        let text = self.redactor.redact(text).into_owned();
        blobs.put(text.into_bytes()).await.ok()
    }
}
