//! A store that kills the process before and after each commit and post.

use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use rye_store::SqliteStore;
use tokio::sync::broadcast;

use super::kill_point;

pub(crate) struct KillingStore(pub(crate) SqliteStore);

impl SessionStore for KillingStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        self.0.claim(session, claim)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.0.release(lease)
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        self.0.holders(session)
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            kill_point();
            let outcome = self.0.commit(lease, batch).await;
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
            let outcome = self.0.post(session, post).await;
            kill_point();
            outcome
        })
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.0.subscribe_posts()
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        Box::pin(async move {
            let orders = self.0.pending_commands(lease).await;
            // A process killed here has read the commands, but not carried them out.
            if orders.as_ref().is_ok_and(|orders| !orders.is_empty()) {
                kill_point();
            }
            orders
        })
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        self.0.snapshot(session)
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        self.0.archive(session)
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.0.sessions(filter)
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.0.path(session, leaf)
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.0.entries(session, thread, after, limit)
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        self.0.session(session)
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        self.0.entry(session, entry)
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.0.pending_gates_in_tree(root)
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.0.gates(session)
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        self.0.gate(gate)
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        self.0.gate_refs(gate)
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        self.0.pending_gates(session)
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        self.0.events(session, after, limit)
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        self.0.remove(leases)
    }
}
