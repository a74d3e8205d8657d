//! Follows a session: its events with their entries, and the gates of the tasks below it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rye_protocol::{Entry, EntryId, EventKind, Gate, GateId, SessionId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::bus::{Feed, MissedEvents, Notice};
use crate::engine::{Engine, EventStream};
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

/// Follows a session and the gates of the tasks below it, whichever process holds them.
pub struct SessionFollower {
    engine: Engine,
    session: SessionId,
    events: EventStream,
    /// The event to return next, until its entry is loaded.
    current: Option<Notice>,
    /// Entries written before, until their event arrives.
    backlog: HashMap<EntryId, Entry>,
    /// Events of all sessions, which show new tasks.
    feed: Feed,
    /// While another process holds the session: notifies of its commits, because the feed does not
    /// show the gates of its tasks.
    commits: Option<watch::Receiver<()>>,
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
    /// Gates that were returned and are not known to be closed.
    announced: HashSet<GateId>,
}

impl SessionFollower {
    /// Follows a session from the event after number `after`. Gates that are pending already are
    /// returned as well.
    pub async fn new(engine: &Engine, session: &SessionId, after: u64) -> Result<Self, StoreError> {
        let events = engine.follow(session, after).await?;
        let feed = engine.feed();
        let threads = match after {
            0 => engine.history(session).await?,
            _ => Vec::new(),
        };
        let entries = threads.into_iter().flat_map(|(_, entries)| entries);
        let (task_events_tx, task_events) = unbounded_channel();
        let mut follower = Self {
            engine: engine.clone(),
            session: session.clone(),
            events: events.keep_running().report_failures(),
            current: None,
            backlog: entries.map(|entry| (entry.id.clone(), entry)).collect(),
            feed,
            commits: None,
            new_task: None,
            must_load_gates: false,
            followed: HashSet::new(),
            follow_from: HashMap::new(),
            task_events,
            task_events_tx,
            pending: VecDeque::new(),
            announced: HashSet::new(),
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

    /// The next update; `None` once the engine is dropped, and an error once the session has failed
    /// here, is lost to another process or is removed. Cancel-safe.
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
                Box::pin(self.follow(&task)).await?;
                (self.new_task, self.must_load_gates) = (None, true);
            }
            if self.must_load_gates {
                Box::pin(self.load_gates()).await?;
                self.must_load_gates = false;
            }
            if self.events.is_live() {
                self.commits = None;
            } else if self.commits.is_none() {
                self.commits = Some(self.engine.store().subscribe_commits());
                self.must_load_gates = true;
                continue;
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
                    let notice = notice?;
                    let notice = notice.ok_or_else(|| StoreError::Fenced(self.session.clone()))?;
                    self.forget(&notice.event.kind);
                    self.current = Some(notice);
                }
                notice = self.feed.next() => match notice {
                    Ok(Some(notice)) => {
                        let id = notice.event.session;
                        if id != self.session && !self.is_followed(&id) {
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
                    if let Some(gate) = self.pending.pop_front() {
                        self.announced.insert(gate.id.clone());
                        return Ok(Some(SessionUpdate::PendingGate(Box::new(gate))));
                    }
                }
                () = committed(self.commits.as_mut()) => self.must_load_gates = true,
            }
        }
    }

    /// Does not return a gate whose opening or closing an event has just announced.
    fn forget(&mut self, kind: &EventKind) {
        if let Some(id) = gate_of(kind) {
            self.pending.retain(|gate| gate.id != *id);
            self.announced.remove(id);
        }
    }

    /// Forwards the gate events of a task: only its own record says that a gate was answered.
    async fn follow(&mut self, id: &SessionId) -> Result<(), StoreError> {
        if self.is_below(id).await? {
            let from = match self.follow_from.get(id) {
                Some(from) => *from,
                None => self.engine.last_event(id).await?,
            };
            let mut events = self.engine.follow(id, from).await?;
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
            if parent.session == self.session {
                return Ok(true);
            }
            session = self.engine.session_data(&parent.session).await?;
        }
        Ok(false)
    }

    /// Queues the pending gates of the session and its tasks.
    async fn load_gates(&mut self) -> Result<(), StoreError> {
        let own = self.session.clone();
        for gate in self.engine.pending_gates_in_tree(&own).await? {
            let session = gate.origin.session;
            if !self.follow_from.contains_key(&session) {
                let last = self.engine.last_event(&session).await?;
                self.follow_from.insert(session, last);
            }
        }
        // Read again: a gate that is pending now closes after the event recorded above.
        let mut pending = self.engine.pending_gates_in_tree(&own).await?;
        if !self.events.is_live() {
            // The feed does not show what another process commits.
            for gate in &pending {
                let task = &gate.origin.session;
                if *task != own && !self.is_followed(task) {
                    self.follow(task).await?;
                }
            }
            pending.retain(|gate| !self.announced.contains(&gate.id));
        }
        self.pending = pending.into();
        Ok(())
    }

    /// The entry that an event refers to.
    async fn entry(&self, notice: &Notice) -> Result<Option<Arc<Entry>>, StoreError> {
        match (&notice.entry, &notice.event.kind) {
            (Some(entry), _) => Ok(Some(Arc::clone(entry))),
            (None, EventKind::MessageEnd { entry: id }) => {
                if let Some(entry) = self.backlog.get(id) {
                    return Ok(Some(Arc::new(entry.clone())));
                }
                let entry = self.engine.store().entry(&self.session, id).await?;
                Ok(entry.map(Arc::new))
            }
            (None, _) => Ok(None),
        }
    }
}

/// Waits for the next commit of another process.
async fn committed(commits: Option<&mut watch::Receiver<()>>) {
    if let Some(commits) = commits
        && commits.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
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
