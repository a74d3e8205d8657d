//! What the engine tells of a session and of those below it, from its beginning on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rye_engine::protocol::{Entry, EntryId, EventKind, StatusKind, ThreadId};
use rye_engine::store::StoreError;
use rye_engine::{Engine, Feed, Missed, Notice, Session, Subscription};

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
}

/// Something that was heard, and is to be taken in.
pub(crate) enum Heard {
    /// Of the session.
    Own(Notice),
    /// Of one below it.
    Below(EventKind),
    /// Of some below it, but it was not understood.
    Missed,
}

impl Ear {
    pub(crate) async fn of(engine: &Engine, session: &Session) -> Result<Self, StoreError> {
        let before = session.last_event().await?;
        let threads = engine.history(session.id()).await?;
        let entries = threads.into_iter().flat_map(|(_, entries)| entries);
        Ok(Self {
            engine: engine.clone(),
            session: session.clone(),
            events: session.subscribe(0),
            feed: engine.feed(),
            known: entries.map(|entry| (entry.id.clone(), entry)).collect(),
            before,
            told: 0,
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
                notice = self.events.next() => {
                    let taken = || StoreError::Fenced(self.session.id().clone());
                    return Ok(Some(Heard::Own(notice?.ok_or_else(taken)?)));
                }
                notice = self.feed.next() => match notice {
                    Ok(Some(notice)) if notice.event.session == *self.session.id() => {}
                    Ok(Some(notice)) => return Ok(Some(Heard::Below(notice.event.kind))),
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
        let now = Instant::now();
        let notice = match heard {
            Heard::Own(notice) => notice,
            Heard::Below(kind) => {
                app.gate_news(&kind, now);
                return Ok(None);
            }
            Heard::Missed => {
                self.look_below(app).await?;
                return Ok(None);
            }
        };
        let entry = self.entry(&notice).await?;
        app.news(&notice.event, entry.as_deref(), now);
        let was_behind = !self.is_caught_up();
        self.told = notice.event.sequence.unwrap_or(self.told);
        if was_behind && self.is_caught_up() {
            // What a thread is doing is told live alone.
            app.statuses(&self.session.threads());
        }
        Ok(match (notice.event.kind, notice.event.thread) {
            (EventKind::QueueState { waiting, .. }, Some(thread)) if waiting.is_empty() => {
                app.queue(&thread, Vec::new());
                None
            }
            (EventKind::QueueState { .. }, thread) => thread,
            _ => None,
        })
    }

    /// Asks what waits for a decision below the session, and is not told of anew.
    pub(crate) async fn look_below(&self, app: &mut App) -> Result<(), StoreError> {
        for gate in self.engine.gates_below(self.session.id()).await? {
            if gate.origin.session != *self.session.id() {
                app.ask(gate, Instant::now());
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
