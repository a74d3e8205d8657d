//! The sessions that a caller can see, whichever process holds them.

use std::sync::Arc;

use rye_engine::protocol::{Entry, EntryId, EventKind, Session, SessionId, Thread};
use rye_engine::store::{SessionSnapshot, StoreError};
use rye_engine::{Engine, EventStream, Notice};

use crate::auth::Principal;
use crate::problem::Problem;

/// The sessions that a caller can see.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(crate) engine: Engine,
}

impl Sessions {
    /// A session that the caller can see.
    pub(crate) async fn session(&self, who: &Principal, id: &str) -> Result<Session, Problem> {
        let unknown = || Problem::not_found("session", id);
        let parsed: SessionId = id.parse().map_err(|_| unknown())?;
        let session = self.engine.session_data(&parsed).await?;
        session.filter(|it| who.can_see(it)).ok_or_else(unknown)
    }

    /// A session that the caller can see, with its state.
    pub(crate) async fn snapshot(
        &self,
        who: &Principal,
        id: &str,
    ) -> Result<SessionSnapshot, Problem> {
        let unknown = || Problem::not_found("session", id);
        let parsed: SessionId = id.parse().map_err(|_| unknown())?;
        let snapshot = self.engine.snapshot(&parsed).await?;
        snapshot
            .filter(|it| who.can_see(&it.session))
            .ok_or_else(unknown)
    }

    /// A thread of a session, by key or id.
    pub(crate) fn thread(snapshot: &SessionSnapshot, name: &str) -> Result<Thread, Problem> {
        let mut threads = snapshot.threads.iter();
        let found = threads.find(|it| it.key == name || it.id.as_str() == name);
        found
            .cloned()
            .ok_or_else(|| Problem::not_found("thread", name))
    }

    /// Entries of a thread.
    pub(crate) async fn entries(
        &self,
        thread: &Thread,
        after: Option<&EntryId>,
        limit: usize,
    ) -> Result<Vec<Entry>, Problem> {
        let store = self.engine.store();
        Ok(store
            .entries(&thread.session, &thread.id, after, limit)
            .await?)
    }

    /// The events of a session after a sequence number.
    pub(crate) async fn follow(
        &self,
        session: &SessionId,
        after: u64,
    ) -> Result<SessionEvents, StoreError> {
        let events = self.engine.follow(session, after).await?;
        Ok(SessionEvents {
            engine: self.engine.clone(),
            session: session.clone(),
            last: after,
            events: events.keep_running(),
            current: None,
        })
    }
}

/// The events of a session, each with the entry that it refers to.
pub(crate) struct SessionEvents {
    engine: Engine,
    session: SessionId,
    /// Sequence number of the last event that was returned.
    last: u64,
    events: EventStream,
    /// The event to return next, until its entry is loaded.
    current: Option<Notice>,
}

impl SessionEvents {
    /// The next event; `None` once the session is deleted. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        if self.current.is_none() {
            self.current = self.events.next().await?;
        }
        let Some(notice) = &self.current else {
            return Ok(None);
        };
        let entry = self.entry(notice).await?;
        let notice = self.current.take();
        if let Some(number) = notice.as_ref().and_then(|it| it.event.sequence) {
            self.last = number;
        }
        Ok(notice.map(|notice| Notice { entry, ..notice }))
    }

    /// Sequence number of the last event that was returned.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The entry that an event refers to.
    async fn entry(&self, notice: &Notice) -> Result<Option<Arc<Entry>>, StoreError> {
        if notice.entry.is_some() {
            return Ok(notice.entry.clone());
        }
        match &notice.event.kind {
            EventKind::MessageEnd { entry } | EventKind::MessageUpdate { entry } => {
                let entry = self.engine.store().entry(&self.session, entry).await?;
                Ok(entry.map(Arc::new))
            }
            _ => Ok(None),
        }
    }
}
