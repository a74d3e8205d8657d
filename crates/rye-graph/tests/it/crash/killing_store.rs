//! A store that kills the process before and after each commit and post.

use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use rye_store::SqliteStore;
use tokio::sync::{Notify, broadcast};

use super::kill_point;

pub(crate) struct KillingStore {
    inner: SqliteStore,
    /// Notified after each commit.
    pub(crate) committed: Notify,
}

impl KillingStore {
    pub(crate) fn new(inner: SqliteStore) -> Self {
        let committed = Notify::new();
        Self { inner, committed }
    }
}

impl SessionStore for KillingStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        self.inner.claim(session, claim)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.inner.release(lease)
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        self.inner.holders(session)
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            kill_point();
            let outcome = self.inner.commit(lease, batch).await;
            self.committed.notify_one();
            kill_point();
            outcome
        })
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            kill_point();
            let outcome = self.inner.post(session, post).await;
            kill_point();
            outcome
        })
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.inner.subscribe_posts()
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        Box::pin(async move {
            let orders = self.inner.pending_commands(lease).await;
            // A process killed here has read the commands, but not carried them out.
            if orders.as_ref().is_ok_and(|orders| !orders.is_empty()) {
                kill_point();
            }
            orders
        })
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        self.inner.snapshot(session)
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        self.inner.archive(session)
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.inner.sessions(filter)
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.inner.path(session, leaf)
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.inner.entries(session, thread, after, limit)
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        self.inner.session(session)
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        self.inner.entry(session, entry)
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.inner.pending_gates_in_tree(root)
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.inner.gates(session)
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        self.inner.gate(gate)
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        self.inner.gate_refs(gate)
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        self.inner.pending_gates(session)
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        self.inner.events(session, after, limit)
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        self.inner.remove(leases)
    }
}
