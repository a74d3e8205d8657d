//! Long output that sessions refer to: whether it is there, and what nobody needs any more.

use std::collections::{BTreeMap, BTreeSet};

use lillux::Hash;
use rye_protocol::{Archive, SessionId};

use super::{Engine, Inner};
use crate::audit::BlobStatus;
use crate::blob::{BlobError, referenced_blobs, required_blobs};
use crate::store::{SessionFilter, StoreError};

/// How many sessions are looked through at once.
const PAGE: usize = 256;

impl Engine {
    /// The bytes of a blob; none where there is no such blob, or no blob store.
    pub async fn blob(&self, hash: &Hash) -> Result<Option<Vec<u8>>, BlobError> {
        match &self.inner.blobs {
            Some(blobs) => blobs.get(hash).await,
            None => Ok(None),
        }
    }

    /// Keeps a blob that comes from elsewhere.
    pub async fn store_blob(&self, bytes: Vec<u8>) -> Result<Hash, BlobError> {
        let none = || BlobError("there is none".to_owned());
        let blobs = self.inner.blobs.as_ref().ok_or_else(none)?;
        blobs.put(bytes).await
    }

    /// How each blob is found that was kept for these sessions.
    pub async fn blob_statuses(&self, archives: &[Archive]) -> BTreeMap<Hash, BlobStatus> {
        let all = archives
            .iter()
            .flat_map(|it| required_blobs(it).into_keys());
        let mut found = BTreeMap::new();
        for hash in all.collect::<BTreeSet<_>>() {
            let kept = match self.blob(&hash).await {
                Ok(Some(_)) => BlobStatus::Intact,
                Ok(None) => BlobStatus::Missing,
                Err(_) => BlobStatus::Altered,
            };
            found.insert(hash, kept);
        }
        found
    }
}

impl Inner {
    /// The blobs that a session names.
    pub(super) async fn blobs_of(&self, id: &SessionId) -> Result<BTreeSet<Hash>, StoreError> {
        if self.blobs.is_none() {
            return Ok(BTreeSet::new());
        }
        let archive = self.store.archive(id).await?;
        Ok(archive.as_ref().map(referenced_blobs).unwrap_or_default())
    }

    /// Removes what only sessions had that are gone.
    pub(super) async fn collect_blobs(&self, left: BTreeSet<Hash>) -> Result<(), StoreError> {
        let Some(blobs) = self.blobs.as_ref().filter(|_| !left.is_empty()) else {
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
        let kept = blobs.collect_garbage(used.into_iter().collect()).await;
        kept.map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}
