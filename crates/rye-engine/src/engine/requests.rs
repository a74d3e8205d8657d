//! Requests to a session, whichever process holds it. They go through the store's inbox; if no
//! process holds the session, this one opens it.

use std::sync::Arc;

use rye_protocol::{
    GateId, PromptId, PromptStatus, QueueMode, QueuedPrompt, Session as SessionData, SessionId,
    SessionStatus, StatusKind, Thread, ThreadId, ThreadStatus,
};

use std::sync::atomic::Ordering;

use super::prompt::{is_turn_end, stored_answer};
use super::session::DEFAULT;
use super::{Answer, Engine, Inner, NewSession, Prompt, Session, ThreadView, check_same};
use crate::machine::stored_status;
use crate::sandbox::SandboxSpec;
use crate::store::{
    Claim, CommandKind, Holder, InboxMessage, SessionCommand, SessionSnapshot, StoreError,
};

/// Why a prompt or a gate cannot be withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// The prompt has started; abort its thread instead.
    #[error("prompt {0} is already running")]
    Running(PromptId),
    /// The prompt has ended.
    #[error("prompt {0} has already ended")]
    Ended(PromptId),
    /// The gate is closed.
    #[error("gate {} is already closed", .0.short())]
    GateClosed(GateId),
    /// The store refused the request.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Creates a session unless it exists, also if another process holds it. An existing one must
    /// have the same owner and purpose.
    pub async fn ensure_session(&self, new: NewSession) -> Result<SessionData, StoreError> {
        let id = new.id.clone().unwrap_or_else(SessionId::new);
        let requested = super::session_data(id.clone(), new.clone(), None, self.inner.clock.now());
        if let Some(existing) = self.session_data(&id).await? {
            check_same(&existing, &requested)?;
            return Ok(existing);
        }
        let id = Some(id.clone());
        match self.create_session(NewSession { id, ..new }).await {
            Ok(session) => Ok((*session.data()).clone()),
            // Another process has just created it.
            Err(StoreError::InUse { session, .. }) => {
                let existing = self.inner.stored_session(&session).await?;
                check_same(&existing, &requested)?;
                Ok(existing)
            }
            Err(error) => Err(error),
        }
    }

    /// Posts a prompt to a thread, which is created if it does not exist, and returns its id once it
    /// is stored. A prompt with the id of an earlier one has no effect if it is the same.
    pub async fn submit(
        &self,
        session: &SessionId,
        prompt: impl Into<Prompt>,
    ) -> Result<PromptId, StoreError> {
        let prompt = prompt.into();
        let record = self.inner.stored_record(session).await?;
        check_accepts_prompts(&record.session)?;
        // Before posting, so that the caller learns why the session cannot run.
        if self.inner.runs_sessions {
            self.inner.ensure_running(session).await?;
        }
        let key = prompt.thread.clone();
        let key = key.as_deref().unwrap_or(DEFAULT);
        let thread = record.threads.into_iter().find(|it| it.key == key);
        if let Some(Thread { status, .. }) = &thread
            && *status == ThreadStatus::Archived
        {
            return Err(StoreError::Archived(key.to_owned()));
        }
        let now = self.inner.clock.now();
        let new_thread = match thread {
            Some(_) => None,
            None => Some(Box::new(Thread::new(session.clone(), key, now))),
        };
        let place = thread.as_ref().or(new_thread.as_deref());
        let (thread, mode) = place.map_or_else(
            || (ThreadId::new(), QueueMode::default()),
            |thread| (thread.id.clone(), thread.mode),
        );
        let new = QueuedPrompt::new(session.clone(), thread, String::new(), now);
        let prompt = prompt.into_queued(new, mode);
        let id = prompt.id.clone();
        let message = InboxMessage::Prompt {
            prompt: Box::new(prompt),
            new_thread,
        };
        self.inner.store.post(session, message).await?;
        self.inner.wake(session).await;
        Ok(id)
    }

    /// Posts a command for one thread, or for the whole session. If no process holds the session,
    /// it is applied here.
    pub async fn command(
        &self,
        session: &SessionId,
        thread: Option<&str>,
        kind: CommandKind,
    ) -> Result<(), StoreError> {
        let record = self.inner.stored_record(session).await?;
        let thread = match thread {
            None => None,
            Some(key) => {
                let mut threads = record.threads.into_iter();
                let thread = threads.find(|it| it.key == key);
                Some(thread.ok_or_else(|| StoreError::NotFound {
                    kind: "thread",
                    id: key.to_owned(),
                })?)
            }
        };
        let thread = thread.map(|thread| thread.id);
        self.post_command(session, SessionCommand::new(thread, kind))
            .await
    }

    async fn post_command(
        &self,
        session: &SessionId,
        command: SessionCommand,
    ) -> Result<(), StoreError> {
        let message = InboxMessage::Command(command);
        self.inner.store.post(session, message).await?;
        if self.inner.runs_sessions {
            self.inner.wake(session).await;
            return Ok(());
        }
        match self.inner.apply_posts(session).await {
            // Its holder is notified.
            Err(StoreError::InUse { .. }) => Ok(()),
            applied => applied,
        }
    }

    /// Withdraws a waiting prompt of a session.
    pub async fn withdraw_prompt(
        &self,
        session: &SessionId,
        prompt: &PromptId,
    ) -> Result<(), WithdrawError> {
        let stored = self.inner.store.prompt(session, prompt).await?;
        let stored = stored.ok_or_else(|| StoreError::NotFound {
            kind: "prompt",
            id: prompt.to_string(),
        })?;
        match stored.status {
            PromptStatus::Waiting => {}
            PromptStatus::Running => return Err(WithdrawError::Running(prompt.clone())),
            _ => return Err(WithdrawError::Ended(prompt.clone())),
        }
        let prompt = prompt.clone();
        let kind = CommandKind::WithdrawPrompt { prompt };
        let command = SessionCommand::new(Some(stored.thread), kind);
        Ok(self.post_command(session, command).await?)
    }

    /// Withdraws a pending gate. The tool that opened it gets an error, and the turn continues.
    pub async fn withdraw_gate(&self, gate: &GateId, reason: &str) -> Result<(), WithdrawError> {
        let stored = self.inner.store.gate(gate).await?;
        let stored = stored.ok_or_else(|| StoreError::NotFound {
            kind: "gate",
            id: gate.to_string(),
        })?;
        if !stored.status.is_pending() {
            return Err(WithdrawError::GateClosed(gate.clone()));
        }
        let kind = CommandKind::WithdrawGate {
            gate: gate.clone(),
            reason: reason.to_owned(),
        };
        let origin = stored.origin;
        let command = SessionCommand::new(Some(origin.thread), kind);
        Ok(self.post_command(&origin.session, command).await?)
    }

    /// Waits until a prompt has ended, and returns its outcome, also if it ended long ago. A prompt
    /// that was merged into another one has that one's outcome.
    pub async fn answer(
        &self,
        session: &SessionId,
        prompt: &PromptId,
    ) -> Result<Answer, StoreError> {
        let last = self.last_event(session).await?;
        let mut events = self.follow(session, last).await?;
        if self.inner.runs_sessions {
            // The process that holds the session may die.
            events = events.keep_running();
        }
        loop {
            if let Some(answer) = self.answer_if_ended(session, prompt).await? {
                return Ok(answer);
            }
            loop {
                match events.next().await? {
                    Some(notice) if is_turn_end(&notice.event.kind) => break,
                    Some(_) => {}
                    None => {
                        return Err(StoreError::NotFound {
                            kind: "prompt",
                            id: prompt.to_string(),
                        });
                    }
                }
            }
        }
    }

    /// The outcome of a prompt; `None` if it has not ended.
    pub async fn answer_if_ended(
        &self,
        session: &SessionId,
        prompt: &PromptId,
    ) -> Result<Option<Answer>, StoreError> {
        stored_answer(&*self.inner.store, session, prompt).await
    }

    /// A prompt of a session, waiting, running or finished; `None` if it does not exist.
    pub async fn prompt(
        &self,
        session: &SessionId,
        prompt: &PromptId,
    ) -> Result<Option<QueuedPrompt>, StoreError> {
        self.inner.store.prompt(session, prompt).await
    }

    /// The threads of a session and what they do, oldest first.
    pub async fn threads(&self, session: &SessionId) -> Result<Vec<ThreadView>, StoreError> {
        if let Some(open) = self.session(session) {
            return Ok(open.threads());
        }
        let record = self.inner.stored_record(session).await?;
        let prompts = &record.prompts;
        let view = |thread: Thread| {
            let has_prompts = prompts.iter().any(|prompt| prompt.thread == thread.id);
            let mut gates = record.gates.iter();
            let is_blocked =
                gates.any(|it| it.origin.thread == thread.id && it.status.is_pending());
            let status = match &thread.turn {
                Some(_) if is_blocked => StatusKind::BlockedOnDecisionGate,
                None if thread.compaction.is_some() => StatusKind::Thinking,
                _ => stored_status(&thread, has_prompts),
            };
            ThreadView {
                id: thread.id,
                key: thread.key,
                status,
            }
        };
        Ok(record.threads.clone().into_iter().map(view).collect())
    }

    /// The live process that holds a session.
    pub async fn holder(&self, session: &SessionId) -> Result<Option<Holder>, StoreError> {
        let holders = self.inner.store.holders(Some(session)).await?;
        Ok(holders.into_iter().next())
    }
}

fn check_accepts_prompts(session: &SessionData) -> Result<(), StoreError> {
    let id = session.id.clone();
    if session.run.is_some() {
        Err(StoreError::SingleCall(id))
    } else if session.parent.is_some() {
        Err(StoreError::Task(id))
    } else if session.status == SessionStatus::Terminated {
        Err(StoreError::Terminated(id))
    } else {
        Ok(())
    }
}

impl Inner {
    /// A session that must exist.
    pub(super) async fn stored_session(&self, id: &SessionId) -> Result<SessionData, StoreError> {
        let session = self.store.session(id).await?;
        session.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })
    }

    /// The state of a session that must exist.
    async fn stored_record(&self, id: &SessionId) -> Result<SessionSnapshot, StoreError> {
        let record = self.store.snapshot(id).await?;
        record.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })
    }

    /// Whether a live process holds a session.
    pub(super) async fn is_held(&self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(!self.store.holders(Some(id)).await?.is_empty())
    }

    /// Whether this process may start work.
    fn starts_sessions(&self) -> bool {
        self.runs_sessions && !self.is_draining.load(Ordering::Acquire)
    }

    /// Opens a session unless a process holds it. A task is opened by its parent.
    pub(super) async fn ensure_running(self: &Arc<Self>, id: &SessionId) -> Result<(), StoreError> {
        if !self.starts_sessions() {
            return Err(StoreError::NotRunHere(id.clone()));
        }
        let mut root = self.stored_session(id).await?;
        while let Some(parent) = root.parent {
            root = self.stored_session(&parent.session).await?;
        }
        let is_over = root.run.is_some() || root.status == SessionStatus::Terminated;
        if is_over || self.open_session(&root.id).is_some() || self.is_held(&root.id).await? {
            return Ok(());
        }
        match self.open(&root.id, Claim::IfFree, None).await {
            // Another process was faster.
            Ok(_) | Err(StoreError::InUse { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// After a post: lets an open session process it, or opens the session. What was posted is
    /// stored, so a failure is only logged; the next process that opens the session processes it.
    pub(super) async fn wake(self: &Arc<Self>, id: &SessionId) {
        let woken = match self.open_session(id) {
            Some(session) => session.drain_inbox().await,
            None if self.starts_sessions() => self.ensure_running(id).await,
            None => Ok(()),
        };
        if let Err(error) = woken {
            tracing::warn!(session = id.as_str(), %error, "cannot continue the session");
        }
    }

    /// Applies what was posted to a session that no process holds, without running it.
    async fn apply_posts(self: &Arc<Self>, id: &SessionId) -> Result<(), StoreError> {
        let lease = self.store.claim(id, Claim::IfFree).await?;
        let Some(record) = self.store.snapshot(id).await? else {
            return self.store.release(&lease).await;
        };
        let data = record.session.clone();
        let spec = SandboxSpec::default();
        let parts = Box::pin(self.parts_of_claimed(&lease, &data, &spec)).await?;
        let session = Session::new(self, lease, data, parts, None);
        session.suspend();
        let applied = async {
            session.restore(record).await?;
            session.drain_inbox().await
        };
        let applied = applied.await;
        session.close().await?;
        applied
    }
}
