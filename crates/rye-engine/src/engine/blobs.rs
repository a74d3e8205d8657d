//! Long output that nobody refers to any more.

use std::collections::BTreeSet;

use lillux::Hash;
use rye_protocol::{EventKind, SessionId};

use super::Inner;
use crate::blob::SCHEME;
use crate::store::{SessionFilter, StoreError};

/// How many sessions are looked through at once.
const PAGE: usize = 256;
/// The length of a hash, written.
const HEX: usize = 64;

impl Inner {
    /// The blobs that a session refers to.
    pub(super) async fn blobs_of(&self, id: &SessionId) -> Result<BTreeSet<String>, StoreError> {
        let mut found = BTreeSet::new();
        if self.blobs.is_none() {
            return Ok(found);
        }
        let archive = self.store.archive(id).await?;
        let Some(archive) = archive else {
            return Ok(found);
        };
        for entry in archive.entries {
            let text = serde_json::to_string(&entry);
            mentioned(&text.unwrap_or_default(), &mut found);
        }
        for event in archive.events {
            if let EventKind::Artifact { source, .. } = event.kind {
                mentioned(&source, &mut found);
            }
        }
        Ok(found)
    }

    /// Removes what only sessions had that are gone.
    pub(super) async fn collect(&self, left: BTreeSet<String>) -> Result<(), StoreError> {
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
        let used = used.iter().filter_map(|hex| hex.parse::<Hash>().ok());
        let kept = blobs.collect(used.collect()).await;
        kept.map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}

/// The hashes behind the scheme in a text.
fn mentioned(text: &str, found: &mut BTreeSet<String>) {
    for (at, _) in text.match_indices(SCHEME) {
        let start = at + SCHEME.len();
        let hex = text.get(start..start + HEX);
        if let Some(hex) = hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            found.insert(hex.to_ascii_lowercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_blob_and_is_none_is_not_one() {
        let hash = "ab".repeat(32);
        let text = format!("blob:{hash}, blob:short blob:{} ä blob:", "g".repeat(64));
        let mut found = BTreeSet::new();
        mentioned(&text, &mut found);
        assert_eq!(found, BTreeSet::from([hash]));
    }
}
