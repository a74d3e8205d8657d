//! Blobs of sessions: lookup, integrity and garbage collection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{Archive, SessionId};

use super::{Engine, Inner};
use crate::audit::BlobStatus;
use crate::blob::{BlobError, BlobStore, file_blobs, referenced_blobs, required_blobs};
use crate::store::{SessionFilter, StoreError};

/// How many sessions are listed at once.
const PAGE: usize = 256;

impl Engine {
    /// The content of a blob; `None` if it or the blob store does not exist.
    pub async fn blob(&self, hash: &Hash) -> Result<Option<Vec<u8>>, BlobError> {
        match &self.inner.blobs {
            Some(blobs) => blobs.get(hash).await,
            None => Ok(None),
        }
    }

    /// The blob store, if there is one.
    pub(crate) fn blob_store(&self) -> Option<Arc<dyn BlobStore>> {
        self.inner.blobs.clone()
    }

    /// Stores a blob.
    pub async fn store_blob(&self, bytes: Vec<u8>) -> Result<Hash, BlobError> {
        let missing = || BlobError("no blob store is configured".to_owned());
        let blobs = self.inner.blobs.as_ref().ok_or_else(missing)?;
        blobs.put(bytes).await
    }

    /// The status of each blob that these sessions require.
    pub async fn blob_statuses(&self, archives: &[Archive]) -> BTreeMap<Hash, BlobStatus> {
        let all = archives
            .iter()
            .flat_map(|it| required_blobs(it).into_keys());
        let mut found = BTreeMap::new();
        for hash in all.collect::<BTreeSet<_>>() {
            let status = match self.blob(&hash).await {
                Ok(Some(_)) => BlobStatus::Intact,
                Ok(None) => BlobStatus::Missing,
                Err(_) => BlobStatus::Altered,
            };
            found.insert(hash, status);
        }
        found
    }
}

impl Inner {
    /// The blobs that a session refers to.
    pub(super) async fn blobs_of(&self, id: &SessionId) -> Result<BTreeSet<Hash>, StoreError> {
        if self.blobs.is_none() {
            return Ok(BTreeSet::new());
        }
        let archive = self.store.archive(id).await?;
        let mut all = archive.as_ref().map(referenced_blobs).unwrap_or_default();
        all.extend(archive.iter().flat_map(file_blobs));
        Ok(all)
    }

    /// Removes blobs that only deleted sessions referred to.
    pub(super) async fn collect_blobs(&self, candidates: BTreeSet<Hash>) -> Result<(), StoreError> {
        let Some(blobs) = self.blobs.as_ref().filter(|_| !candidates.is_empty()) else {
            return Ok(());
        };
        let mut used = BTreeSet::new();
        let mut before = None;
        loop {
            let page = self.store.sessions(SessionFilter {
                before: before.take(),
                limit: PAGE,
                ..SessionFilter::default()
            });
            let page = page.await?;
            for session in &page {
                used.extend(self.blobs_of(&session.id).await?);
            }
            match page.last() {
                Some(last) if page.len() == PAGE => before = Some(last.id.clone()),
                _ => break,
            }
        }
        let collected = blobs.collect_garbage(used.into_iter().collect()).await;
        collected.map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}
