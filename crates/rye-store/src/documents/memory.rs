//! Documents in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::ready;
use std::ops::Bound;

use parking_lot::Mutex;
use rye_engine::documents::{Document, DocumentKind, DocumentQuery, DocumentStore, DocumentWrite};
use rye_engine::store::StoreFuture;
use rye_protocol::Millis;

/// Documents that exist until the process ends.
#[derive(Debug, Default)]
pub struct MemoryDocuments {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    documents: BTreeMap<(DocumentKind, String), Document>,
    last_version: u64,
}

impl MemoryDocuments {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl State {
    fn list(&self, query: &DocumentQuery) -> Vec<Document> {
        let first = (query.kind, query.prefix.clone());
        let range = self
            .documents
            .range((Bound::Included(first), Bound::Unbounded));
        let range = range.map(|(_, document)| document).take_while(|document| {
            document.kind == query.kind && document.id.starts_with(&query.prefix)
        });
        let mut found: Vec<&Document> = range.collect();
        if query.descending {
            found.reverse();
        }
        let is_after = |document: &&Document| match &query.after {
            None => true,
            Some(after) if query.descending => document.id < *after,
            Some(after) => document.id > *after,
        };
        let found = found.into_iter().filter(is_after);
        found.take(query.limit).cloned().collect()
    }

    fn due(&self, kind: DocumentKind, now: Millis, limit: usize) -> Vec<Document> {
        let is_due = |it: &&Document| it.kind == kind && it.due_at.is_some_and(|due| due <= now);
        let mut due: Vec<&Document> = self.documents.values().filter(is_due).collect();
        due.sort_by_key(|document| (document.due_at, document.version));
        due.into_iter().take(limit).cloned().collect()
    }

    fn write(&mut self, writes: Vec<DocumentWrite>) -> bool {
        let has_expected_version = |write: &DocumentWrite| {
            let found = self.documents.get(&(write.kind, write.id.clone()));
            found.map(|document| document.version) == write.expected
        };
        if !writes.iter().all(has_expected_version) {
            return false;
        }
        for write in writes {
            let entry = self.documents.entry((write.kind, write.id.clone()));
            let Some((due_at, body)) = write.content else {
                if let Entry::Occupied(entry) = entry {
                    entry.remove();
                }
                continue;
            };
            self.last_version += 1;
            entry.insert_entry(Document {
                kind: write.kind,
                id: write.id,
                version: self.last_version,
                due_at,
                body,
            });
        }
        true
    }
}

impl DocumentStore for MemoryDocuments {
    fn get<'a>(&'a self, kind: DocumentKind, id: &'a str) -> StoreFuture<'a, Option<Document>> {
        let key = (kind, id.to_owned());
        let found = self.state.lock().documents.get(&key).cloned();
        Box::pin(ready(Ok(found)))
    }

    fn list(&self, query: DocumentQuery) -> StoreFuture<'_, Vec<Document>> {
        Box::pin(ready(Ok(self.state.lock().list(&query))))
    }

    fn due(&self, kind: DocumentKind, now: Millis, limit: usize) -> StoreFuture<'_, Vec<Document>> {
        Box::pin(ready(Ok(self.state.lock().due(kind, now, limit))))
    }

    fn write(&self, writes: Vec<DocumentWrite>) -> StoreFuture<'_, bool> {
        Box::pin(ready(Ok(self.state.lock().write(writes))))
    }
}
