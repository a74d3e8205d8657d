//! What the engine tells of a session and of those below it, from its beginning on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rye_engine::protocol::{Entry, EntryId, EventKind, SessionId, StatusKind, ThreadId};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Feed, Missed, Notice, Session, Subscription};

use tokio::sync::mpsc;

use crate::app::App;

/// Whoever listens to a session.
pub(crate) struct Ear {
    engine: Engine,
    session: Session,
    events: Subscription,
    feed: Feed,
    /// Entries that were written before, and have not been told of yet.
    known: HashMap<EntryId, Entry>,
    /// The number of the last event there was then, and of the last that was told.
    before: u64,
    told: u64,
    /// Sessions below that are followed, and what they tell of gates.
    followed: HashSet<SessionId>,
    /// From which event on those are to be whose gates are known.
    from: HashMap<SessionId, u64>,
    tell: mpsc::UnboundedSender<EventKind>,
    gates: mpsc::UnboundedReceiver<EventKind>,
}

/// Something that was heard, and is to be taken in.
pub(crate) enum Heard {
    /// Of the session.
    Own(Notice),
    /// Of a gate below it.
    Gate(EventKind),
    /// That one below it does something.
    Below(SessionId),
    /// Of some below it, but it was not understood.
    Missed,
}

impl Ear {
    pub(crate) async fn of(engine: &Engine, session: &Session) -> Result<Self, StoreError> {
        let before = session.last_event().await?;
        let threads = engine.history(session.id()).await?;
        let entries = threads.into_iter().flat_map(|(_, entries)| entries);
        let (tell, gates) = mpsc::unbounded_channel();
        Ok(Self {
            engine: engine.clone(),
            session: session.clone(),
            events: session.subscribe(0),
            feed: engine.feed(),
            known: entries.map(|entry| (entry.id.clone(), entry)).collect(),
            before,
            told: 0,
            followed: HashSet::new(),
            from: HashMap::new(),
            tell,
            gates,
        })
    }

    /// Whether all that was there before has been told.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.told >= self.before
    }

    /// Whether nothing more will be told unless somebody does something.
    pub(crate) async fn is_over(&self) -> Result<bool, StoreError> {
        let threads = self.session.threads();
        let idle = threads.iter().all(|it| it.status == StatusKind::Idle);
        // A thread is idle before the last it did has been heard of.
        Ok(idle && self.told >= self.session.last_event().await?)
    }

    /// What comes next; none once there is nobody to tell. Nothing is lost if this is not
    /// waited for any longer.
    pub(crate) async fn next(&mut self) -> Result<Option<Heard>, StoreError> {
        loop {
            tokio::select! {
                biased;
                // What becomes of a gate below comes before what comes of that here.
                Some(kind) = self.gates.recv() => return Ok(Some(Heard::Gate(kind))),
                notice = self.events.next() => {
                    let taken = || StoreError::Fenced(self.session.id().clone());
                    return Ok(Some(Heard::Own(notice?.ok_or_else(taken)?)));
                }
                notice = self.feed.next() => match notice {
                    Ok(Some(notice)) if notice.event.session == *self.session.id() => {}
                    Ok(Some(notice)) if self.followed.contains(&notice.event.session) => {}
                    Ok(Some(notice)) => return Ok(Some(Heard::Below(notice.event.session))),
                    Ok(None) => return Ok(None),
                    Err(Missed(_)) => return Ok(Some(Heard::Missed)),
                },
            }
        }
    }

    /// Lets the app know. The thread whose queue is to be looked at, if there is one.
    pub(crate) async fn take(
        &mut self,
        heard: Heard,
        app: &mut App,
    ) -> Result<Option<ThreadId>, StoreError> {
        let notice = match heard {
            Heard::Own(notice) => notice,
            Heard::Gate(kind) => {
                app.gate_news(&kind);
                return Ok(None);
            }
            Heard::Below(session) => {
                self.follow(session).await?;
                self.look_below(app).await?;
                return Ok(None);
            }
            Heard::Missed => {
                let own = self.session.id();
                let heard = |it: &SessionId| it == own || self.followed.contains(it);
                app.gates.retain(|it| heard(&it.gate.origin.session));
                self.look_below(app).await?;
                return Ok(None);
            }
        };
        let entry = self.entry(&notice).await?;
        app.news(&notice.event, entry.as_deref());
        let was_behind = !self.is_caught_up();
        self.told = notice.event.sequence.unwrap_or(self.told);
        if was_behind && self.is_caught_up() {
            // What a thread is doing is told live alone.
            app.statuses(&self.session.threads());
        }
        Ok(match (notice.event.kind, notice.event.thread) {
            (EventKind::QueueState { waiting, .. }, thread) => {
                thread.filter(|_| !waiting.is_empty())
            }
            _ => None,
        })
    }

    /// Listens to a session below for what becomes of its gates: that they were answered, the
    /// record says alone.
    async fn follow(&mut self, id: SessionId) -> Result<(), StoreError> {
        if let Some(session) = self.engine.session(&id) {
            let from = match self.from.get(&id) {
                Some(from) => *from,
                None => session.last_event().await?,
            };
            let mut events = session.subscribe(from);
            let tell = self.tell.clone();
            tokio::spawn(async move {
                while let Ok(Some(notice)) = events.next().await {
                    let _ = tell.send(notice.event.kind);
                }
            });
        }
        self.followed.insert(id);
        Ok(())
    }

    /// Asks what waits for a decision below the session.
    pub(crate) async fn look_below(&mut self, app: &mut App) -> Result<(), StoreError> {
        let own = self.session.id();
        for gate in self.engine.gates_below(own).await? {
            let session = gate.origin.session;
            if !self.from.contains_key(&session) {
                let last = self.engine.last_event(&session).await?;
                self.from.insert(session, last);
            }
        }
        // Those that wait still: their ends come after what was the last event.
        for gate in self.engine.gates_below(own).await? {
            if gate.origin.session != *own {
                app.ask(gate);
            }
        }
        Ok(())
    }

    /// The entry that an event tells of.
    async fn entry(&mut self, notice: &Notice) -> Result<Option<Arc<Entry>>, StoreError> {
        if let Some(entry) = &notice.entry {
            return Ok(Some(Arc::clone(entry)));
        }
        let EventKind::MessageEnd { entry: id } = &notice.event.kind else {
            return Ok(None);
        };
        if let Some(entry) = self.known.remove(id) {
            return Ok(Some(Arc::new(entry)));
        }
        let Some(thread) = &notice.event.thread else {
            return Ok(None);
        };
        let all = self.session.entries(thread, None, usize::MAX).await?;
        Ok(all.into_iter().find(|entry| entry.id == *id).map(Arc::new))
    }
}
