//! A store with injected delays and failures.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, PromptId, QueuedPrompt,
    Session, SessionId, ThreadId,
};
use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreError, StoreFuture,
};
use rye_store::SqliteStore;
use tokio::sync::{broadcast, watch};

/// Faults to inject. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Delay of each call in milliseconds.
    slow: Arc<AtomicU32>,
    /// Number of calls before the first failure.
    good: Arc<AtomicU32>,
    /// Number of failures.
    failures: Arc<AtomicU32>,
    /// Fault of reading a history.
    permanent: Arc<Mutex<Option<PermanentFault>>>,
}

/// A permanent fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermanentFault {
    /// The data is unreadable.
    Unreadable,
    /// The store panics.
    Panics,
}

impl Faults {
    pub(crate) fn begin(&self, slow: u32, good: u32, failures: u32) {
        self.slow.store(slow, Ordering::SeqCst);
        self.good.store(good, Ordering::SeqCst);
        self.failures.store(failures, Ordering::SeqCst);
    }

    pub(crate) fn set_permanent(&self, permanent: Option<PermanentFault>) {
        *self.permanent.lock().unwrap() = permanent;
    }

    /// Number of failures still to inject.
    pub(crate) fn remaining(&self) -> u32 {
        self.failures.load(Ordering::SeqCst)
    }
}

/// Decrements a counter. Returns false if it was zero.
fn decrement(from: &AtomicU32) -> bool {
    let less = |left: u32| left.checked_sub(1);
    from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .is_ok()
}

/// Injects faults into the calls of another store.
pub(crate) struct FaultyStore {
    store: SqliteStore,
    faults: Faults,
}

impl FaultyStore {
    pub(crate) fn new(store: SqliteStore, faults: Faults) -> Self {
        Self { store, faults }
    }

    /// Delays the call, and fails if a failure is due.
    async fn inject(&self) -> Result<(), StoreError> {
        let slow = self.faults.slow.load(Ordering::SeqCst);
        if slow > 0 {
            tokio::time::sleep(Duration::from_millis(slow.into())).await;
        }
        if !decrement(&self.faults.good) && decrement(&self.faults.failures) {
            return Err(StoreError::Unavailable("no disk, for a while".to_owned()));
        }
        Ok(())
    }
}

/// Forwards a call after injecting faults.
macro_rules! after_trouble {
    ($self:ident, $call:expr) => {
        Box::pin(async move {
            $self.inject().await?;
            $call.await
        })
    };
}

impl SessionStore for FaultyStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        after_trouble!(self, self.store.claim(session, claim))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        after_trouble!(self, self.store.release(lease))
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        after_trouble!(self, self.store.check())
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        after_trouble!(self, self.store.holders(session))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        after_trouble!(self, self.store.commit(lease, batch))
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        after_trouble!(self, self.store.post(session, post))
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.store.subscribe_posts()
    }

    fn subscribe_commits(&self) -> watch::Receiver<()> {
        self.store.subscribe_commits()
    }

    fn prompt<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> StoreFuture<'a, Option<QueuedPrompt>> {
        self.store.prompt(session, prompt)
    }

    fn due(&self, before: Millis) -> StoreFuture<'_, Vec<SessionId>> {
        self.store.due(before)
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        after_trouble!(self, self.store.pending_commands(lease))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        after_trouble!(self, self.store.snapshot(session))
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        after_trouble!(self, self.store.session(session))
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        after_trouble!(self, self.store.archive(session))
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        after_trouble!(self, self.store.sessions(filter))
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        let permanent = *self.faults.permanent.lock().unwrap();
        match permanent {
            None => after_trouble!(self, self.store.path(session, leaf)),
            Some(PermanentFault::Unreadable) => {
                Box::pin(async { Err(StoreError::Unreadable("an entry is no entry".to_owned())) })
            }
            Some(PermanentFault::Panics) => Box::pin(async { panic!("a bug of the store") }),
        }
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        after_trouble!(self, self.store.entries(session, thread, after, limit))
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        after_trouble!(self, self.store.entry(session, entry))
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        after_trouble!(self, self.store.gate(gate))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        after_trouble!(self, self.store.gate_refs(gate))
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        after_trouble!(self, self.store.pending_gates(session))
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        after_trouble!(self, self.store.pending_gates_in_tree(root))
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        after_trouble!(self, self.store.gates(session))
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        after_trouble!(self, self.store.events(session, after, limit))
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        after_trouble!(self, self.store.remove(leases))
    }
}
