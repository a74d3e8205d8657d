//! Events of a session and of the tasks below it, from the first event on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rye_engine::protocol::{Entry, EntryId, EventKind, SessionId, StatusKind};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Feed, MissedEvents, Notice, Session, Subscription};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::app::App;
use crate::effects::Update;

/// Subscription to a session and to the gates of the sessions below it.
pub(crate) struct SessionEvents {
    engine: Engine,
    session: Session,
    events: Subscription,
    feed: Feed,
    /// Entries written before the chat subscribed, until their event arrives.
    backlog: HashMap<EntryId, Entry>,
    /// Number of the last event written before the chat subscribed.
    backlog_end: u64,
    /// Number of the last event applied.
    last_applied: u64,
    /// Descendant sessions whose events are forwarded to `gates`.
    followed: HashSet<SessionId>,
    /// Event to start from when following a descendant whose open gates are known.
    follow_from: HashMap<SessionId, u64>,
    gates_tx: UnboundedSender<EventKind>,
    gates: UnboundedReceiver<EventKind>,
    /// Results of effects.
    updates: UnboundedReceiver<Update>,
}

/// What arrived, to be applied with [`SessionEvents::apply`].
pub(crate) enum SessionEvent {
    /// An event of the session itself.
    Own(Notice),
    /// An event of a descendant, which may concern a gate.
    Descendant(EventKind),
    /// A descendant that is not followed yet wrote an event.
    NewDescendant(SessionId),
    /// The feed lagged, so events of descendants may be lost.
    Lagged,
    /// An effect has ended.
    Update(Update),
}

impl SessionEvents {
    pub(crate) async fn subscribe(
        engine: &Engine,
        session: &Session,
        updates: UnboundedReceiver<Update>,
    ) -> Result<Self, StoreError> {
        let backlog_end = session.last_event().await?;
        let threads = engine.history(session.id()).await?;
        let entries = threads.into_iter().flat_map(|(_, entries)| entries);
        let (gates_tx, gates) = unbounded_channel();
        Ok(Self {
            engine: engine.clone(),
            session: session.clone(),
            events: session.subscribe(0),
            feed: engine.feed(),
            backlog: entries.map(|entry| (entry.id.clone(), entry)).collect(),
            backlog_end,
            last_applied: 0,
            followed: HashSet::new(),
            follow_from: HashMap::new(),
            gates_tx,
            gates,
            updates,
        })
    }

    /// Whether every event written before the chat subscribed has been applied.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.last_applied >= self.backlog_end
    }

    /// Whether all threads are idle and every event has been applied.
    pub(crate) async fn is_idle(&self) -> Result<bool, StoreError> {
        let threads = self.session.threads();
        let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
        // A thread becomes idle before its last event arrives here.
        Ok(idle && self.last_applied >= self.session.last_event().await?)
    }

    /// The next event; `None` once the engine has shut down. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<SessionEvent>, StoreError> {
        loop {
            tokio::select! {
                biased;
                // A task's gate closes before the events that follow from it arrive here.
                Some(kind) = self.gates.recv() => return Ok(Some(SessionEvent::Descendant(kind))),
                notice = self.events.next() => {
                    let fenced = || StoreError::Fenced(self.session.id().clone());
                    return Ok(Some(SessionEvent::Own(notice?.ok_or_else(fenced)?)));
                }
                notice = self.feed.next() => match notice {
                    Ok(Some(notice)) if notice.event.session == *self.session.id() => {}
                    Ok(Some(notice)) if self.followed.contains(&notice.event.session) => {}
                    Ok(Some(notice)) => {
                        return Ok(Some(SessionEvent::NewDescendant(notice.event.session)));
                    }
                    Ok(None) => return Ok(None),
                    Err(MissedEvents(_)) => return Ok(Some(SessionEvent::Lagged)),
                },
                Some(update) = self.updates.recv() => {
                    return Ok(Some(SessionEvent::Update(update)));
                }
            }
        }
    }

    /// Waits until all effects have ended. Call it once nothing starts new ones.
    pub(crate) async fn wait_for_effects(&mut self) {
        while self.updates.recv().await.is_some() {}
    }

    /// Applies an event to the app.
    pub(crate) async fn apply(
        &mut self,
        event: SessionEvent,
        app: &mut App,
    ) -> Result<(), StoreError> {
        let notice = match event {
            SessionEvent::Own(notice) => notice,
            SessionEvent::Descendant(kind) => {
                app.on_gate_event(&kind);
                return Ok(());
            }
            SessionEvent::NewDescendant(session) => {
                self.follow(session).await?;
                return self.load_descendant_gates(app).await;
            }
            SessionEvent::Lagged => {
                let own = self.session.id();
                let subscribed = |it: &SessionId| it == own || self.followed.contains(it);
                app.gates.retain(|it| subscribed(&it.gate.origin.session));
                return self.load_descendant_gates(app).await;
            }
            SessionEvent::Update(update) => {
                update(app);
                return Ok(());
            }
        };
        let entry = self.entry(&notice).await?;
        app.on_event(&notice.event, entry.as_deref());
        let was_behind = !self.is_caught_up();
        self.last_applied = notice.event.sequence.unwrap_or(self.last_applied);
        if was_behind && self.is_caught_up() {
            // Status events are not stored, so the backlog has none.
            app.set_statuses(&self.session.threads());
        }
        if let (EventKind::QueueState { waiting, .. }, Some(thread)) =
            (&notice.event.kind, &notice.event.thread)
            && !waiting.is_empty()
        {
            app.set_queue(thread, &self.session.waiting_prompts(thread).await?);
        }
        Ok(())
    }

    /// Forwards the events of a descendant: only its own record says that a gate was answered.
    async fn follow(&mut self, id: SessionId) -> Result<(), StoreError> {
        if let Some(session) = self.engine.session(&id) {
            let from = match self.follow_from.get(&id) {
                Some(from) => *from,
                None => session.last_event().await?,
            };
            let mut events = session.subscribe(from);
            let gates = self.gates_tx.clone();
            tokio::spawn(async move {
                while let Ok(Some(notice)) = events.next().await {
                    let _ = gates.send(notice.event.kind);
                }
            });
        }
        self.followed.insert(id);
        Ok(())
    }

    /// Adds the open gates of descendants to the app.
    pub(crate) async fn load_descendant_gates(&mut self, app: &mut App) -> Result<(), StoreError> {
        let own = self.session.id();
        for gate in self.engine.pending_gates_in_tree(own).await? {
            let session = gate.origin.session;
            if !self.follow_from.contains_key(&session) {
                let last = self.engine.last_event(&session).await?;
                self.follow_from.insert(session, last);
            }
        }
        // Read again: a gate that is open now closes after the event recorded above.
        for gate in self.engine.pending_gates_in_tree(own).await? {
            if gate.origin.session != *own {
                app.add_gate(gate);
            }
        }
        Ok(())
    }

    /// The entry that an event refers to.
    async fn entry(&mut self, notice: &Notice) -> Result<Option<Arc<Entry>>, StoreError> {
        if let Some(entry) = &notice.entry {
            return Ok(Some(Arc::clone(entry)));
        }
        let EventKind::MessageEnd { entry: id } = &notice.event.kind else {
            return Ok(None);
        };
        if let Some(entry) = self.backlog.remove(id) {
            return Ok(Some(Arc::new(entry)));
        }
        Ok(self.session.entry(id).await?.map(Arc::new))
    }
}
