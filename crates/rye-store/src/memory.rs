//! A session store in memory, for tests and for sessions that need not survive the process.

mod state;

use std::collections::HashSet;
use std::fmt;
use std::future;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rye_engine::clock::{Clock, SystemClock};
use rye_engine::store::{
    Claim, Holder, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter,
    SessionSnapshot, SessionStore, StoreError, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Millis, PromptId, QueuedPrompt,
    Session, SessionId, ThreadId, matches_id,
};
use tokio::sync::{broadcast, watch};

use crate::invariants::{ENTRY, SESSION, not_found};
use state::{SessionState, State};

/// Capacity of the channel that announces posts. A slower subscriber gets a lag error.
const POSTS_CAPACITY: usize = 1024;

/// A session store in memory.
///
/// All work is done when a method returns; the returned future is ready.
pub struct MemoryStore {
    state: Mutex<State>,
    posts: broadcast::Sender<SessionId>,
    commits: watch::Sender<()>,
    clock: Arc<dyn Clock>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::default()))
    }

    /// An empty store that takes the time of its events from this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::default(),
            posts: broadcast::channel(POSTS_CAPACITY).0,
            commits: watch::Sender::default(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves no partial change: failed batches are undone before they return.
        self.state.lock()
    }

    fn read<'a, T: Send + 'a>(
        &self,
        read: impl FnOnce(&State) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        ready(read(&self.lock()))
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(future::ready(result))
}

impl SessionStore for MemoryStore {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        let mut state = self.lock();
        let claimed = state.claim(session, claim);
        if claimed.is_ok() && state.sessions.contains_key(session) {
            // An error means that there is no subscriber.
            let _ = self.posts.send(session.clone());
        }
        ready(claimed)
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        ready(Ok(()))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.lock().release(lease);
        // An error means that there is no subscriber.
        let _ = self.posts.send(lease.session.clone());
        ready(Ok(()))
    }

    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>> {
        ready(Ok(self.lock().holders(session)))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        let committed = self.lock().commit(lease, batch, self.clock.now());
        if committed.is_ok() {
            self.commits.send_replace(());
        }
        ready(committed)
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        let posted = self.lock().post(session, post, self.clock.now());
        if let Ok((_, true)) = posted {
            // An error means that there is no subscriber.
            let _ = self.posts.send(session.clone());
        }
        ready(posted.map(|(posted, _)| posted))
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.posts.subscribe()
    }

    fn subscribe_commits(&self) -> watch::Receiver<()> {
        self.commits.subscribe()
    }

    fn prompt<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> StoreFuture<'a, Option<QueuedPrompt>> {
        self.read(|state| {
            let session_state = state.sessions.get(session);
            let stored = session_state.and_then(|it| it.prompts.get(prompt));
            Ok(stored.map(|stored| QueuedPrompt::clone(&stored.prompt)))
        })
    }

    fn due(&self, before: Millis) -> StoreFuture<'_, Vec<SessionId>> {
        self.read(|state| Ok(state.due(before)))
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        self.read(|state| state.pending_commands(lease))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        self.read(|state| {
            let session_state = state.sessions.get(session);
            Ok(session_state.map(|session_state| snapshot(state, session_state)))
        })
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>> {
        self.read(|state| Ok(state.sessions.get(session).map(|it| it.session.clone())))
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        self.read(|state| {
            let session_state = state.sessions.get(session);
            Ok(session_state.map(|session_state| archive(state, session_state)))
        })
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.read(|state| {
            let end = match &filter.before {
                None => None,
                Some(id) => {
                    let position = state.sessions.get_index_of(id);
                    Some(position.ok_or_else(|| not_found(SESSION, id))?)
                }
            };
            let older = state
                .sessions
                .values()
                .take(end.unwrap_or(usize::MAX))
                .rev();
            let older = older.map(|session_state| &session_state.session);
            let matching = older.filter(|session| {
                let (user, parent) = (filter.user.as_ref(), filter.parent.as_ref());
                let own_parent = session.parent.as_ref().map(|parent| &parent.session);
                let part = filter.id_part.as_deref();
                user.is_none_or(|user| session.user_id.as_ref() == Some(user))
                    && parent.is_none_or(|parent| own_parent == Some(parent))
                    && part.is_none_or(|part| matches_id(session.id.as_str(), part))
            });
            Ok(matching.take(filter.limit).cloned().collect())
        })
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.read(|state| {
            let session_state = state.sessions.get(session);
            let entries = session_state.map(|session_state| &session_state.entries);
            let find = |id: &EntryId| entries.and_then(|entries| entries.get(id));
            let leaf = find(leaf).ok_or_else(|| not_found(ENTRY, leaf))?;
            let up = |entry: &&Arc<Entry>| entry.parent.as_ref().and_then(find);
            let mut path = clone_all(std::iter::successors(Some(leaf), up));
            path.reverse();
            Ok(path)
        })
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.read(|state| {
            let session_state = state.sessions.get(session);
            let position =
                |id| session_state.and_then(|session_state| session_state.entries.get_index_of(id));
            let start = match after {
                None => None,
                Some(id) => Some(position(id).ok_or_else(|| not_found(ENTRY, id))?),
            };
            let Some(session_state) = session_state else {
                return Ok(Vec::new());
            };
            let first = start.map_or(0, |start| start + 1);
            let later = session_state.entries.values().skip(first);
            let own = later.filter(|entry| entry.thread == *thread);
            Ok(clone_all(own.take(limit)))
        })
    }

    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>> {
        self.read(|state| {
            let entries = state.sessions.get(session).map(|it| &it.entries);
            let entry = entries.and_then(|entries| entries.get(entry));
            Ok(entry.map(|entry| Entry::clone(entry)))
        })
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        self.read(|state| Ok(state.gates.get(gate).map(|gate| Gate::clone(gate))))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        self.read(|state| {
            let session = state.gates.get(gate).map(|gate| &gate.origin.session);
            let session_state = session.and_then(|session| state.sessions.get(session));
            let refs = session_state.map_or(&[][..], |session_state| &session_state.gate_refs);
            let own = refs.iter().filter(|gate_ref| gate_ref.gate == *gate);
            Ok(own.cloned().collect())
        })
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        self.read(|state| {
            let pending = state.gates.values().filter(|gate| {
                let matches = session.is_none_or(|session| gate.origin.session == *session);
                matches && gate.status.is_pending()
            });
            Ok(clone_all(pending))
        })
    }

    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.read(|state| {
            let parent = |id: &SessionId| {
                let session = &state.sessions.get(id)?.session;
                session.parent.as_ref().map(|parent| parent.session.clone())
            };
            let pending = state.gates.values().filter(|gate| gate.status.is_pending());
            let in_tree = |gate: &&Arc<Gate>| {
                let first = Some(gate.origin.session.clone());
                std::iter::successors(first, parent).any(|id| id == *root)
            };
            Ok(clone_all(pending.filter(in_tree)))
        })
    }

    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>> {
        self.read(|state| {
            let gates = state.gates.values();
            Ok(clone_all(
                gates.filter(|gate| gate.origin.session == *session),
            ))
        })
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        self.read(|state| {
            let session_state = state.sessions.get(session);
            let events = session_state
                .map(|session_state| session_state.events_after(after).take(limit).collect());
            Ok(events.unwrap_or_default())
        })
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        ready(self.lock().remove(leases))
    }
}

fn clone_all<'a, T: Clone + 'a>(values: impl Iterator<Item = &'a Arc<T>>) -> Vec<T> {
    values.map(|value| T::clone(value)).collect()
}

fn archive(state: &State, session_state: &SessionState) -> Archive {
    let gates = state.gates.values();
    let gates = clone_all(gates.filter(|gate| gate.origin.session == session_state.session.id));
    // Grouped by gate.
    let mut gate_refs = Vec::new();
    for Gate { id, .. } in &gates {
        gate_refs.extend(
            session_state
                .gate_refs
                .iter()
                .filter(|gate_ref| gate_ref.gate == *id)
                .cloned(),
        );
    }
    Archive {
        session: session_state.session.clone(),
        threads: clone_all(session_state.threads.values()),
        entries: clone_all(session_state.entries.values()),
        prompts: clone_all(session_state.prompts.values().map(|stored| &stored.prompt)),
        gates,
        gate_refs,
        events: session_state.events_after(0).collect(),
    }
}

fn snapshot(state: &State, session_state: &SessionState) -> SessionSnapshot {
    let all = session_state.prompts.values().map(|stored| &stored.prompt);
    let mut prompts = clone_all(all.filter(|prompt| !prompt.status.is_finished()));
    prompts.sort_by_key(|prompt| prompt.order);
    let active: HashSet<_> = prompts.iter().map(|prompt| &prompt.id).collect();
    let gates = state.gates.values().filter(|gate| {
        gate.origin.session == session_state.session.id && active.contains(&gate.origin.prompt)
    });
    SessionSnapshot {
        session: session_state.session.clone(),
        threads: clone_all(session_state.threads.values()),
        gates: clone_all(gates),
        sequence: session_state.events.len() as u64,
        prompts,
    }
}
