//! A store that records commits, to replay them against another store.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use rye_engine::store::{Lease, SessionStore, StoreFuture};
use rye_protocol::{Batch, Op, SessionId};
use rye_store::MemoryStore;
use rye_testkit::wrapped_store::{StoreWrapper, WrappedStore};
use serde::Serialize;

/// All commits with their sessions.
pub(super) type Commits = Arc<Mutex<Vec<(SessionId, Batch)>>>;

/// Records commits.
#[derive(Default)]
pub(super) struct Recording {
    commits: Commits,
}

/// An in-memory store that records the commits.
pub(super) fn recording_store() -> (WrappedStore<Recording>, Commits) {
    let recording = Recording::default();
    let commits = Arc::clone(&recording.commits);
    (WrappedStore::new(MemoryStore::new(), recording), commits)
}

/// Bytes of a batch's documents.
pub(super) fn payload_bytes(batch: &Batch) -> Result<usize> {
    fn size(document: &impl Serialize) -> Result<usize> {
        Ok(serde_json::to_vec(document)?.len())
    }
    let op = |op: &Op| match op {
        Op::PutSession(it) => size(it),
        Op::PutThread(it) => size(it),
        Op::AppendEntry(it) | Op::ReplaceEntry(it) => size(it),
        Op::PutPrompt(it) => size(it),
        Op::PutGate(it) => size(it),
        Op::AddUsage(it) => size(it),
        Op::Event(thread, kind) => size(&(thread, kind)),
        _ => Ok(0),
    };
    batch.ops.iter().map(op).sum()
}

impl StoreWrapper for Recording {
    fn commit<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        lease: &'a Lease,
        batch: Batch,
    ) -> StoreFuture<'a, u64> {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.push((lease.session.clone(), batch.clone()));
        store.commit(lease, batch)
    }
}
