//! Follows a session: its events with their entries, and the gates of the tasks below it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rye_protocol::{Entry, EntryId, EventKind, Gate, GateId, SessionId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::bus::{Feed, MissedEvents, Notice, Subscription};
use crate::engine::{Engine, Session};
use crate::store::StoreError;

/// What happens in a session, and at the gates of the tasks below it.
pub enum SessionUpdate {
    /// An event of the session, with the entry that it refers to.
    Event(Notice),
    /// A gate that was pending before, or that a task opened. The session's own events may
    /// announce it as well.
    PendingGate(Box<Gate>),
    /// A task's gate was closed, by this event.
    TaskGateClosed(EventKind),
    /// Events of tasks were lost: gates of sessions that are not
    /// [followed](SessionFollower::is_followed) may have closed. Those that are pending follow.
    Lagged,
}

/// Follows a session and the gates of the tasks below it.
pub struct SessionFollower {
    engine: Engine,
    session: Session,
    events: Subscription,
    /// The event to return next, until its entry is loaded.
    current: Option<Notice>,
    /// Entries written before, until their event arrives.
    backlog: HashMap<EntryId, Entry>,
    /// Events of all sessions, which show new tasks.
    feed: Feed,
    /// The session of the last event in the feed, until it is followed.
    new_task: Option<SessionId>,
    must_load_gates: bool,
    /// Sessions whose tree is known: those below this one, which are followed, and unrelated ones.
    followed: HashSet<SessionId>,
    /// Event to start from when following a task whose pending gates are known.
    follow_from: HashMap<SessionId, u64>,
    /// Gate events of tasks.
    task_events: UnboundedReceiver<EventKind>,
    task_events_tx: UnboundedSender<EventKind>,
    /// Gates to return after the session's own events, which decide what they belong to.
    pending: VecDeque<Gate>,
}

impl SessionFollower {
    /// Follows a session from the event after number `after`. Gates that are pending already are
    /// returned as well.
    pub async fn new(engine: &Engine, session: &Session, after: u64) -> Result<Self, StoreError> {
        let events = session.subscribe(after);
        let feed = engine.feed();
        let threads = match after {
            0 => engine.history(session.id()).await?,
            _ => Vec::new(),
        };
        let entries = threads.into_iter().flat_map(|(_, entries)| entries);
        let (task_events_tx, task_events) = unbounded_channel();
        let mut follower = Self {
            engine: engine.clone(),
            session: session.clone(),
            events,
            current: None,
            backlog: entries.map(|entry| (entry.id.clone(), entry)).collect(),
            feed,
            new_task: None,
            must_load_gates: false,
            followed: HashSet::new(),
            follow_from: HashMap::new(),
            task_events,
            task_events_tx,
            pending: VecDeque::new(),
        };
        follower.load_gates().await?;
        Ok(follower)
    }

    /// Whether gates are known that were not returned yet.
    pub fn has_pending_gates(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether all events of a task arrive here.
    pub fn is_followed(&self, task: &SessionId) -> bool {
        self.followed.contains(task)
    }

    /// The next update; `None` once the engine is dropped, and an error once the session is closed.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<SessionUpdate>, StoreError> {
        loop {
            if let Some(notice) = &self.current {
                let entry = self.entry(notice).await?;
                if let EventKind::MessageEnd { entry } = &notice.event.kind {
                    self.backlog.remove(entry);
                }
                let notice = self.current.take();
                return Ok(notice.map(|it| SessionUpdate::Event(Notice { entry, ..it })));
            }
            if let Some(task) = self.new_task.clone() {
                self.follow(&task).await?;
                (self.new_task, self.must_load_gates) = (None, true);
            }
            if self.must_load_gates {
                self.load_gates().await?;
                self.must_load_gates = false;
            }
            tokio::select! {
                biased;
                // A task's gate closes before the events that follow from it arrive here.
                Some(kind) = self.task_events.recv() => {
                    self.forget(&kind);
                    match kind {
                        EventKind::DecisionGate { gate } => self.pending.push_back(*gate),
                        closed => return Ok(Some(SessionUpdate::TaskGateClosed(closed))),
                    }
                }
                notice = self.events.next() => {
                    let notice = notice?.ok_or_else(|| self.close_reason())?;
                    self.forget(&notice.event.kind);
                    self.current = Some(notice);
                }
                notice = self.feed.next() => match notice {
                    Ok(Some(notice)) => {
                        let id = notice.event.session;
                        if id != *self.session.id() && !self.is_followed(&id) {
                            self.new_task = Some(id);
                        }
                    }
                    Ok(None) => return Ok(None),
                    Err(MissedEvents(_)) => {
                        self.must_load_gates = true;
                        return Ok(Some(SessionUpdate::Lagged));
                    }
                },
                () = std::future::ready(()), if !self.pending.is_empty() => {
                    let gate = self.pending.pop_front();
                    return Ok(gate.map(|gate| SessionUpdate::PendingGate(Box::new(gate))));
                }
            }
        }
    }

    /// Why the session is closed.
    fn close_reason(&self) -> StoreError {
        match self.session.close_reason() {
            StoreError::NotFound { .. } => StoreError::Fenced(self.session.id().clone()),
            failure => failure,
        }
    }

    /// Does not return a gate whose opening or closing an event has just announced.
    fn forget(&mut self, kind: &EventKind) {
        if let Some(id) = gate_of(kind) {
            self.pending.retain(|gate| gate.id != *id);
        }
    }

    /// Forwards the gate events of a task: only its own record says that a gate was answered.
    async fn follow(&mut self, id: &SessionId) -> Result<(), StoreError> {
        if self.is_below(id).await?
            && let Some(task) = self.engine.session(id)
        {
            let from = match self.follow_from.get(id) {
                Some(from) => *from,
                None => task.last_event().await?,
            };
            let mut events = task.subscribe(from);
            let forwarded = self.task_events_tx.clone();
            tokio::spawn(async move {
                while let Ok(Some(notice)) = events.next().await {
                    let kind = notice.event.kind;
                    if gate_of(&kind).is_some() && forwarded.send(kind).is_err() {
                        return;
                    }
                }
            });
        }
        self.followed.insert(id.clone());
        Ok(())
    }

    async fn is_below(&self, id: &SessionId) -> Result<bool, StoreError> {
        let mut session = self.engine.session_data(id).await?;
        while let Some(parent) = session.and_then(|session| session.parent) {
            if parent.session == *self.session.id() {
                return Ok(true);
            }
            session = self.engine.session_data(&parent.session).await?;
        }
        Ok(false)
    }

    /// Queues the pending gates of the session and its tasks.
    async fn load_gates(&mut self) -> Result<(), StoreError> {
        let own = self.session.id();
        for gate in self.engine.pending_gates_in_tree(own).await? {
            let session = gate.origin.session;
            if !self.follow_from.contains_key(&session) {
                let last = self.engine.last_event(&session).await?;
                self.follow_from.insert(session, last);
            }
        }
        // Read again: a gate that is pending now closes after the event recorded above.
        let pending = self.engine.pending_gates_in_tree(own).await?;
        self.pending = pending.into();
        Ok(())
    }

    /// The entry that an event refers to.
    async fn entry(&self, notice: &Notice) -> Result<Option<Arc<Entry>>, StoreError> {
        match (&notice.entry, &notice.event.kind) {
            (Some(entry), _) => Ok(Some(Arc::clone(entry))),
            (None, EventKind::MessageEnd { entry: id }) => match self.backlog.get(id) {
                Some(entry) => Ok(Some(Arc::new(entry.clone()))),
                None => Ok(self.session.entry(id).await?.map(Arc::new)),
            },
            (None, _) => Ok(None),
        }
    }
}

/// The gate that an event opens or closes.
fn gate_of(kind: &EventKind) -> Option<&GateId> {
    match kind {
        EventKind::DecisionGate { gate } => Some(&gate.id),
        EventKind::DecisionGateResolved { gate, .. }
        | EventKind::DecisionGateExpired { gate }
        | EventKind::DecisionGateWithdrawn { gate, .. } => Some(gate),
        _ => None,
    }
}
