//! A store that forwards to another one and calls a wrapper around some operations: to kill the
//! process, to fail, or to record what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, PromptId, QueuedPrompt,
    Session, SessionId, ThreadId,
};
use tokio::sync::{broadcast, watch};

/// What to do around the operations that write. By default, they are forwarded.
pub trait StoreWrapper: Send + Sync + 'static {
    /// Around a commit.
    fn commit<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        lease: &'a Lease,
        batch: Batch,
    ) -> StoreFuture<'a, u64> {
        store.commit(lease, batch)
    }

    /// Around a post.
    fn post<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        session: &'a SessionId,
        message: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        store.post(session, message)
    }

    /// Around reading the pending commands.
    fn pending_commands<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        lease: &'a Lease,
    ) -> StoreFuture<'a, Vec<SessionCommand>> {
        store.pending_commands(lease)
    }
}

/// A store with a wrapper.
pub struct WrappedStore<W> {
    /// The store that does the work.
    pub store: Arc<dyn SessionStore>,
    /// What happens around its operations.
    pub wrapper: W,
}

impl<W> WrappedStore<W> {
    /// Wraps a store.
    pub fn new(store: impl SessionStore, wrapper: W) -> Self {
        let store = Arc::new(store);
        Self { store, wrapper }
    }
}

impl<W: StoreWrapper> SessionStore for WrappedStore<W> {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        self.store.claim(session, claim)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.store.release(lease)
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        self.store.check()
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        self.store.holders(session)
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        self.wrapper.commit(&*self.store, lease, batch)
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        message: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        self.wrapper.post(&*self.store, session, message)
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
        self.wrapper.pending_commands(&*self.store, lease)
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

/// Environment variable with the number of the kill point at which a process is killed.
pub const KILL_AT: &str = "RYE_KILL_AT";

/// A kill point: kills the process with `SIGKILL` if its number is chosen by [`KILL_AT`].
pub fn kill_point() {
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let number = PASSED.fetch_add(1, Ordering::SeqCst);
    let chosen = std::env::var(KILL_AT).ok();
    if chosen.and_then(|text| text.parse().ok()) == Some(number) {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        loop {
            std::thread::park();
        }
    }
}

/// Has a kill point before and after each commit and post.
#[derive(Debug, Default)]
pub struct Killer {
    /// Notified after each commit.
    pub committed: tokio::sync::Notify,
}

impl StoreWrapper for Killer {
    fn commit<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        lease: &'a Lease,
        batch: Batch,
    ) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            kill_point();
            let outcome = store.commit(lease, batch).await;
            self.committed.notify_one();
            kill_point();
            outcome
        })
    }

    fn post<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        session: &'a SessionId,
        message: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        Box::pin(async move {
            kill_point();
            let outcome = store.post(session, message).await;
            kill_point();
            outcome
        })
    }

    fn pending_commands<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        lease: &'a Lease,
    ) -> StoreFuture<'a, Vec<SessionCommand>> {
        Box::pin(async move {
            let commands = store.pending_commands(lease).await;
            // A process killed here has read the commands, but not carried them out.
            if commands.as_ref().is_ok_and(|commands| !commands.is_empty()) {
                kill_point();
            }
            commands
        })
    }
}
