//! Reaches sessions whether or not this process holds them.

use std::sync::Arc;

use rye_engine::protocol::{Entry, EntryId, EventKind, PromptId, Session, SessionId, Thread};
use rye_engine::store::{CommandKind, SessionSnapshot, StoreError};
use rye_engine::{Answer, Engine, EventStream, Notice, Prompt};

use crate::auth::Principal;
use crate::problem::Problem;

/// The sessions that a caller can see.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(crate) engine: Engine,
}

/// A prompt that is stored.
pub(crate) struct AcceptedPrompt {
    pub(crate) id: PromptId,
}

/// What is known about a prompt.
pub(crate) enum PromptState {
    /// It has not ended.
    Open,
    /// It has ended.
    Ended(Answer),
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

    /// Stores a prompt, and makes sure that a process works on it.
    pub(crate) async fn submit(
        &self,
        session: &SessionId,
        prompt: Prompt,
    ) -> Result<AcceptedPrompt, Problem> {
        let id = self.engine.submit(session, prompt).await?;
        Ok(AcceptedPrompt { id })
    }

    /// Sends a command to the holder of a session.
    pub(crate) async fn command(
        &self,
        session: &SessionId,
        thread: Option<&Thread>,
        kind: CommandKind,
    ) -> Result<(), Problem> {
        let key = thread.map(|thread| thread.key.as_str());
        Ok(self.engine.command(session, key, kind).await?)
    }

    /// The events of a session after a sequence number.
    pub(crate) fn follow(&self, session: SessionId, after: u64) -> SessionEvents {
        SessionEvents {
            engine: self.engine.clone(),
            session,
            last: after,
            stream: None,
            current: None,
        }
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

    /// Whether a prompt has ended, and how; `None` if it does not exist.
    pub(crate) async fn prompt_state(
        &self,
        session: &SessionId,
        prompt: &PromptId,
    ) -> Result<Option<PromptState>, Problem> {
        match self.engine.answer_if_ended(session, prompt).await {
            Ok(Some(answer)) => Ok(Some(PromptState::Ended(answer))),
            Ok(None) => Ok(Some(PromptState::Open)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The events of a session: every stored event once and in order, with live events in between if
/// this process holds the session.
pub(crate) struct SessionEvents {
    engine: Engine,
    session: SessionId,
    /// Sequence number of the last event.
    last: u64,
    /// Opened when the first event is read.
    stream: Option<EventStream>,
    /// The event to return next, until its entry is loaded.
    current: Option<Notice>,
}

impl SessionEvents {
    /// The next event, with the entry that it refers to; `None` once the session is deleted.
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        loop {
            if let Some(notice) = &self.current {
                let entry = self.entry(notice).await?;
                let notice = self.current.take();
                return Ok(notice.map(|notice| Notice { entry, ..notice }));
            }
            let Some(notice) = self.read().await? else {
                return Ok(None);
            };
            if let Some(number) = notice.event.sequence {
                if number <= self.last {
                    continue;
                }
                self.last = number;
            }
            self.current = Some(notice);
        }
    }

    /// Sequence number of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Waits for the next event.
    async fn read(&mut self) -> Result<Option<Notice>, StoreError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            stream => {
                let events = self.engine.follow(&self.session, self.last).await;
                match events {
                    Ok(events) => stream.insert(events),
                    Err(StoreError::NotFound { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        stream.next().await
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
