//! A store that is slow, and fails for a while.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_engine::protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use rye_engine::store::{
    Claim, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter, SessionSnapshot,
    SessionStore, StoreError, StoreFuture,
};
use rye_store::SqliteStore;
use tokio::sync::broadcast;

/// What goes wrong. Whoever has a clone can change it.
#[derive(Clone, Default)]
pub(crate) struct Trouble {
    /// How many milliseconds everything takes.
    slow: Arc<AtomicU32>,
    /// How many calls go well before any fails.
    good: Arc<AtomicU32>,
    /// How many fail then.
    failures: Arc<AtomicU32>,
    /// What becomes of whoever reads a history, other than reading it.
    harm: Arc<Mutex<Option<Harm>>>,
}

/// What is no matter of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Its bytes make no sense.
    Unreadable,
    /// The store has a bug.
    Panics,
}

impl Trouble {
    pub(crate) fn begin(&self, slow: u32, good: u32, failures: u32) {
        self.slow.store(slow, Ordering::SeqCst);
        self.good.store(good, Ordering::SeqCst);
        self.failures.store(failures, Ordering::SeqCst);
    }

    pub(crate) fn harm(&self, harm: Option<Harm>) {
        *self.harm.lock().unwrap() = harm;
    }

    /// How many failures are still to come.
    pub(crate) fn left(&self) -> u32 {
        self.failures.load(Ordering::SeqCst)
    }
}

/// Whether there was one more.
fn take_one(from: &AtomicU32) -> bool {
    let less = |left: u32| left.checked_sub(1);
    from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .is_ok()
}

/// A store between the engine and another one.
pub(crate) struct Flaky {
    store: SqliteStore,
    trouble: Trouble,
}

impl Flaky {
    pub(crate) fn new(store: SqliteStore, trouble: Trouble) -> Self {
        Self { store, trouble }
    }

    /// Waits, and fails if it is to.
    async fn trouble(&self) -> Result<(), StoreError> {
        let slow = self.trouble.slow.load(Ordering::SeqCst);
        if slow > 0 {
            tokio::time::sleep(Duration::from_millis(slow.into())).await;
        }
        if !take_one(&self.trouble.good) && take_one(&self.trouble.failures) {
            return Err(StoreError::Unavailable("no disk, for a while".to_owned()));
        }
        Ok(())
    }
}

/// Each does what the store behind it does, some time.
macro_rules! after_trouble {
    ($self:ident, $call:expr) => {
        Box::pin(async move {
            $self.trouble().await?;
            $call.await
        })
    };
}

impl SessionStore for Flaky {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        after_trouble!(self, self.store.claim(session, claim))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        after_trouble!(self, self.store.release(lease))
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

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        after_trouble!(self, self.store.pending_commands(lease))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        after_trouble!(self, self.store.snapshot(session))
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
        let harm = *self.trouble.harm.lock().unwrap();
        match harm {
            None => after_trouble!(self, self.store.path(session, leaf)),
            Some(Harm::Unreadable) => {
                Box::pin(async { Err(StoreError::Unreadable("an entry is no entry".to_owned())) })
            }
            Some(Harm::Panics) => Box::pin(async { panic!("a bug of the store") }),
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

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        after_trouble!(self, self.store.gate(gate))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        after_trouble!(self, self.store.gate_refs(gate))
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        after_trouble!(self, self.store.pending_gates(session))
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
