//! Reaches sessions whether or not this process holds them.

use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{
    Entry, EntryId, Event, EventKind, PromptId, QueuedPrompt, Session, SessionId, Thread, TurnEnd,
};
use rye_engine::store::{
    Claim, CommandKind, InboxMessage, SessionCommand, SessionSnapshot, StoreError,
};
use rye_engine::{Answer, Engine, Notice, Prompt, Subscription};
use rye_protocol::EntryKind;
use rye_protocol::Role;

use crate::auth::Principal;
use crate::problem::Problem;
use crate::tokens::now;

/// Key of the thread for prompts that name none.
pub(crate) const DEFAULT_THREAD: &str = "default";

/// Interval at which the events of a session that another process holds are read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Number of events that are read at once.
const PAGE: usize = 256;

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
        match self.engine.open_session(session, Claim::IfFree).await {
            Ok(open) => {
                let id = open.prompt(prompt).await?;
                Ok(AcceptedPrompt { id })
            }
            Err(in_use @ StoreError::InUse { .. }) => self.post(session, prompt, in_use).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Posts a prompt to the process that holds the session.
    async fn post(
        &self,
        session: &SessionId,
        prompt: Prompt,
        in_use: StoreError,
    ) -> Result<AcceptedPrompt, Problem> {
        let snapshot = self.engine.snapshot(session).await?;
        let threads = snapshot
            .map(|snapshot| snapshot.threads)
            .unwrap_or_default();
        let key = prompt.thread.as_deref().unwrap_or(DEFAULT_THREAD);
        let thread = threads.into_iter().find(|thread| thread.key == key);
        let Some(thread) = thread else {
            return Err(in_use.into());
        };
        let new = QueuedPrompt::new(session.clone(), thread.id, prompt.content, now());
        let queued = QueuedPrompt {
            id: prompt.id.unwrap_or_else(|| new.id.clone()),
            attachments: prompt.attachments,
            author: prompt.author,
            reply_to: prompt.reply_to,
            model: prompt.model,
            role: prompt.role,
            limits: prompt.limits,
            mode: prompt.mode.unwrap_or(thread.mode),
            result_schema: prompt.schema,
            ..new
        };
        let id = queued.id.clone();
        let store = self.engine.store();
        store
            .post(session, InboxMessage::Prompt(Box::new(queued)))
            .await?;
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
        match self.engine.open_session(session, Claim::IfFree).await {
            Ok(open) => match kind {
                CommandKind::Abort => open.abort(key).await?,
                CommandKind::Pause => open.pause(key).await?,
                CommandKind::Resume => open.resume(key).await?,
            },
            Err(StoreError::InUse { .. }) => {
                let thread = thread.map(|thread| thread.id.clone());
                let command = SessionCommand::new(thread, kind);
                let post = InboxMessage::Command(command);
                self.engine.store().post(session, post).await?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Makes sure that a process continues a session that was waiting.
    pub(crate) async fn wake(&self, session: &SessionId) -> Result<(), Problem> {
        let mut root = session.clone();
        while let Some(data) = self.engine.session_data(&root).await? {
            if data.run.is_some() {
                return Ok(());
            }
            match data.parent {
                Some(parent) => root = parent.session,
                None => break,
            }
        }
        match self.engine.open_session(&root, Claim::IfFree).await {
            Ok(_) | Err(StoreError::InUse { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The events of a session after a sequence number.
    pub(crate) fn follow(&self, session: SessionId, after: u64) -> SessionEvents {
        SessionEvents {
            engine: self.engine.clone(),
            session,
            last: after,
            source: None,
            backlog: Vec::new().into_iter(),
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
        let mut prompt = prompt.clone();
        let (mut last, mut error) = (0, None);
        loop {
            let page = self.engine.store().events(session, last, PAGE).await?;
            let Some(end) = page.last() else { break };
            last = end.sequence.unwrap_or(u64::MAX);
            for event in page {
                match event.kind {
                    EventKind::Error { error: failure }
                        if failure.ids.prompt.as_ref() == Some(&prompt) =>
                    {
                        error = Some(failure.message);
                    }
                    EventKind::TurnEnd {
                        prompt: ended,
                        reason,
                    } if ended == prompt => {
                        let (text, result) = self.last_text(session, &prompt).await?;
                        return Ok(Some(PromptState::Ended(Answer {
                            reason,
                            text,
                            result,
                            error,
                        })));
                    }
                    EventKind::PromptMerged {
                        prompt: merged,
                        into,
                    } if merged == prompt => {
                        prompt = into;
                    }
                    EventKind::PromptCancelled {
                        prompt: cancelled, ..
                    } if cancelled == prompt => {
                        return Ok(Some(PromptState::Ended(Answer {
                            reason: TurnEnd::Abort,
                            text: String::new(),
                            result: None,
                            error,
                        })));
                    }
                    _ => {}
                }
            }
        }
        let open = self.engine.unfinished_prompts(session).await?;
        let is_open = open.iter().any(|it| it.id == prompt);
        Ok(is_open.then_some(PromptState::Open))
    }

    /// The model's last text for a prompt, and its structured result.
    async fn last_text(
        &self,
        session: &SessionId,
        prompt: &PromptId,
    ) -> Result<(String, Option<serde_json::Value>), Problem> {
        let snapshot = self.engine.snapshot(session).await?;
        for thread in snapshot
            .map(|snapshot| snapshot.threads)
            .unwrap_or_default()
        {
            let entries = self.entries(&thread, None, usize::MAX).await?;
            let own = entries.into_iter().rev();
            let mut own = own.filter(|entry| entry.prompt.as_ref() == Some(prompt));
            let answer = own.find_map(|entry| match entry.kind {
                EntryKind::Message(message)
                    if message.role == Role::Assistant && !message.content().is_empty() =>
                {
                    Some((message.content(), message.result))
                }
                _ => None,
            });
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        Ok((String::new(), None))
    }
}

/// The events of a session: every stored event once and in order, with live events in between if
/// this process holds the session.
pub(crate) struct SessionEvents {
    engine: Engine,
    session: SessionId,
    /// Sequence number of the last event.
    last: u64,
    /// The events of the session while it is open here.
    source: Option<Subscription>,
    backlog: std::vec::IntoIter<Event>,
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
            let notice = match self.backlog.next() {
                Some(event) => Notice { event, entry: None },
                None => match self.read().await? {
                    Some(notice) => notice,
                    None => return Ok(None),
                },
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
        loop {
            if let Some(events) = &mut self.source {
                match events.next().await? {
                    Some(notice) => return Ok(Some(notice)),
                    // The session was closed here.
                    None => self.source = None,
                }
            }
            if let Some(open) = self.engine.session(&self.session) {
                self.source = Some(open.subscribe(self.last));
                continue;
            }
            let page = self
                .engine
                .store()
                .events(&self.session, self.last, PAGE)
                .await?;
            let mut page = page.into_iter();
            if let Some(event) = page.next() {
                self.backlog = page;
                return Ok(Some(Notice { event, entry: None }));
            }
            if self.engine.session_data(&self.session).await?.is_none() {
                return Ok(None);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
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
