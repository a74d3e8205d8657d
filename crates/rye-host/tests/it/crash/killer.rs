//! A store that kills its process before or after a commit.

use std::sync::atomic::{AtomicU32, Ordering};

use rye_engine::protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use rye_engine::store::{
    Claim, Control, Lease, Post, Posted, Record, SessionFilter, SessionStore, Stored,
};
use rye_store::Sqlite;
use tokio::sync::broadcast;

/// The point at which to die.
pub(crate) const KILL_AT: &str = "RYE_CRASH_KILL_AT";

/// A place at which a process may die. It does, if this is the one.
pub(crate) fn point() {
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let number = PASSED.fetch_add(1, Ordering::SeqCst);
    let chosen = std::env::var(KILL_AT)
        .ok()
        .and_then(|text| text.parse().ok());
    if chosen == Some(number) {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        loop {
            std::thread::park();
        }
    }
}

pub(crate) struct Killer(pub(crate) Sqlite);

impl SessionStore for Killer {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> Stored<'a, Lease> {
        self.0.claim(session, claim)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Stored<'a, ()> {
        self.0.release(lease)
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> Stored<'a, u64> {
        Box::pin(async move {
            point();
            let outcome = self.0.commit(lease, batch).await;
            point();
            outcome
        })
    }

    fn post<'a>(&'a self, session: &'a SessionId, post: Post) -> Stored<'a, Posted> {
        Box::pin(async move {
            point();
            let outcome = self.0.post(session, post).await;
            point();
            outcome
        })
    }

    fn posts(&self) -> broadcast::Receiver<SessionId> {
        self.0.posts()
    }

    fn controls<'a>(&'a self, lease: &'a Lease) -> Stored<'a, Vec<Control>> {
        Box::pin(async move {
            let orders = self.0.controls(lease).await;
            // Whoever dies here has read them, and has carried none out.
            if orders.as_ref().is_ok_and(|orders| !orders.is_empty()) {
                point();
            }
            orders
        })
    }

    fn record<'a>(&'a self, session: &'a SessionId) -> Stored<'a, Option<Record>> {
        self.0.record(session)
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> Stored<'a, Option<Archive>> {
        self.0.archive(session)
    }

    fn sessions(&self, filter: SessionFilter) -> Stored<'_, Vec<Session>> {
        self.0.sessions(filter)
    }

    fn path<'a>(&'a self, session: &'a SessionId, leaf: &'a EntryId) -> Stored<'a, Vec<Entry>> {
        self.0.path(session, leaf)
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> Stored<'a, Vec<Entry>> {
        self.0.entries(session, thread, after, limit)
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> Stored<'a, Option<Gate>> {
        self.0.gate(gate)
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> Stored<'a, Vec<GateRef>> {
        self.0.gate_refs(gate)
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> Stored<'a, Vec<Gate>> {
        self.0.pending_gates(session)
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<Event>> {
        self.0.events(session, after, limit)
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> Stored<'a, ()> {
        self.0.remove(leases)
    }
}
