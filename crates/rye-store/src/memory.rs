//! A store that forgets everything when the process ends: for tests, and for work that
//! nobody wants kept.

mod shelf;
mod world;

use std::collections::HashSet;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::store::{
    Claim, InboxMessage, Lease, PostOutcome, SessionCommand, SessionFilter, SessionSnapshot,
    SessionStore, StoreError, StoreFuture,
};
use rye_protocol::{
    Archive, Batch, Entry, EntryId, Event, Gate, GateId, GateRef, Session, SessionId, ThreadId,
};
use tokio::sync::broadcast;

use crate::rules::{ENTRY, SESSION, not_found};
use world::{Held, World};

/// How many posts a listener may be behind before it is told that it lagged.
const POSTS: usize = 1024;

/// A store in memory.
///
/// What is written is there when the call returns; the future that it gives is only there
/// because other stores need one.
pub struct Memory {
    world: Mutex<World>,
    posts: broadcast::Sender<SessionId>,
    clock: Arc<dyn Clock>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty one.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::default()))
    }

    /// An empty one that dates its events by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            world: Mutex::default(),
            posts: broadcast::channel(POSTS).0,
            clock,
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // Whoever panicked within had changed nothing half: what fails is taken back.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T: Send + 'a>(
        &self,
        read: impl FnOnce(&World) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        now(read(&self.world()))
    }
}

fn now<'a, T: Send + 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(ready(result))
}

impl SessionStore for Memory {
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease> {
        now(self.world().claim(session, claim))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.world().release(lease);
        now(Ok(()))
    }

    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64> {
        now(self.world().commit(lease, batch, self.clock.now()))
    }

    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome> {
        let posted = self.world().post(session, post);
        if let Ok((_, true)) = posted {
            // Nobody may be listening.
            let _ = self.posts.send(session.clone());
        }
        now(posted.map(|(posted, _)| posted))
    }

    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId> {
        self.posts.subscribe()
    }

    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>> {
        self.read(|world| world.pending_commands(lease))
    }

    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>> {
        self.read(|world| {
            let held = world.sessions.get(session);
            Ok(held.map(|held| record(world, held)))
        })
    }

    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>> {
        self.read(|world| {
            let held = world.sessions.get(session);
            Ok(held.map(|held| archive(world, held)))
        })
    }

    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>> {
        self.read(|world| {
            let end = match &filter.before {
                None => None,
                Some(id) => {
                    let place = world.sessions.place(id);
                    Some(place.ok_or_else(|| not_found(SESSION, id))?)
                }
            };
            let older = world.sessions.before(end).map(|held| &held.session);
            let wanted = older.filter(|session| {
                let (user, parent) = (filter.user.as_ref(), filter.parent.as_ref());
                let above = session.parent.as_ref().map(|parent| &parent.session);
                user.is_none_or(|user| session.user_id.as_ref() == Some(user))
                    && parent.is_none_or(|parent| above == Some(parent))
            });
            Ok(wanted.take(filter.limit).cloned().collect())
        })
    }

    fn path<'a>(
        &'a self,
        session: &'a SessionId,
        leaf: &'a EntryId,
    ) -> StoreFuture<'a, Vec<Entry>> {
        self.read(|world| {
            let held = world.sessions.get(session);
            let entries = held.map(|held| &held.entries);
            let find = |id: &EntryId| entries.and_then(|entries| entries.get(id));
            let leaf = find(leaf).ok_or_else(|| not_found(ENTRY, leaf))?;
            let up = |entry: &&Arc<Entry>| entry.parent.as_ref().and_then(find);
            let mut path = copies(std::iter::successors(Some(leaf), up));
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
        self.read(|world| {
            let held = world.sessions.get(session);
            let place = |id| held.and_then(|held| held.entries.place(id));
            let start = match after {
                None => None,
                Some(id) => Some(place(id).ok_or_else(|| not_found(ENTRY, id))?),
            };
            let Some(held) = held else {
                return Ok(Vec::new());
            };
            let behind = held.entries.after(start);
            let own = behind.filter(|entry| entry.thread == *thread);
            Ok(copies(own.take(limit)))
        })
    }

    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>> {
        self.read(|world| Ok(world.gates.get(gate).map(|gate| Gate::clone(gate))))
    }

    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>> {
        self.read(|world| {
            let session = world.gates.get(gate).map(|gate| &gate.origin.session);
            let held = session.and_then(|session| world.sessions.get(session));
            let refs = held.map_or(&[][..], |held| &held.refs);
            let own = refs.iter().filter(|shown| shown.gate == *gate);
            Ok(own.cloned().collect())
        })
    }

    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>> {
        self.read(|world| {
            let pending = world.gates.values().filter(|gate| {
                let wanted = session.is_none_or(|session| gate.origin.session == *session);
                wanted && gate.status.is_pending()
            });
            Ok(copies(pending))
        })
    }

    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>> {
        self.read(|world| {
            let held = world.sessions.get(session);
            let events = held.map(|held| held.events(after).take(limit).collect());
            Ok(events.unwrap_or_default())
        })
    }

    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()> {
        now(self.world().remove(leases))
    }
}

fn copies<'a, T: Clone + 'a>(things: impl Iterator<Item = &'a Arc<T>>) -> Vec<T> {
    things.map(|thing| T::clone(thing)).collect()
}

fn archive(world: &World, held: &Held) -> Archive {
    let gates = world.gates.values();
    let gates = copies(gates.filter(|gate| gate.origin.session == held.session.id));
    // Gate by gate.
    let mut refs = Vec::new();
    for Gate { id, .. } in &gates {
        refs.extend(held.refs.iter().filter(|shown| shown.gate == *id).cloned());
    }
    Archive {
        session: held.session.clone(),
        threads: copies(held.threads.values()),
        entries: copies(held.entries.values()),
        prompts: copies(held.prompts.values().map(|asked| &asked.prompt)),
        gates,
        gate_refs: refs,
        suspended_turns: copies(held.suspended.values()),
        events: held.events(0).collect(),
    }
}

fn record(world: &World, held: &Held) -> SessionSnapshot {
    let asked = held.prompts.values().map(|asked| &asked.prompt);
    let mut prompts = copies(asked.filter(|prompt| !prompt.status.is_finished()));
    prompts.sort_by_key(|prompt| prompt.order);
    let active: HashSet<_> = prompts.iter().map(|prompt| &prompt.id).collect();
    let gates = world.gates.values().filter(|gate| {
        gate.origin.session == held.session.id && active.contains(&gate.origin.prompt)
    });
    SessionSnapshot {
        session: held.session.clone(),
        threads: copies(held.threads.values()),
        gates: copies(gates),
        suspended: copies(held.suspended.values()),
        sequence: held.told.len() as u64,
        prompts,
    }
}
