//! A store that records commits, to replay them against another store.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Op, Session, SessionId, ThreadId,
};
use rye_store::MemoryStore;
use serde::Serialize;
use tokio::sync::broadcast;

/// All commits with their sessions.
pub(super) type Commits = Arc<Mutex<Vec<(SessionId, Batch)>>>;

/// An in-memory store that records the commits.
#[derive(Default)]
pub(super) struct RecordingStore {
    store: MemoryStore,
    pub(super) commits: Commits,
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

impl SessionStore for RecordingStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        self.store.claim(session, claim)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.store.release(lease)
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        self.store.holders(session)
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.push((lease.session.clone(), batch.clone()));
        self.store.commit(lease, batch)
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        self.store.post(session, post)
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.store.subscribe_posts()
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        self.store.pending_commands(lease)
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        self.store.snapshot(session)
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        self.store.session(session)
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        self.store.archive(session)
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.store.sessions(filter)
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.store.path(session, leaf)
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.store.entries(session, thread, after, limit)
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        self.store.entry(session, entry)
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        self.store.gate(gate)
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        self.store.gate_refs(gate)
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        self.store.pending_gates(session)
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.store.pending_gates_in_tree(root)
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.store.gates(session)
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        self.store.events(session, after, limit)
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        self.store.remove(leases)
    }
}
