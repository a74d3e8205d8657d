//! Prompts and their answers.

use rye_protocol::{
    Author, EntryKind, ErrorInfo, EventKind, Limits, Part, PromptId, PromptStatus, QueueMode,
    QueuedPrompt, SessionId, StatusKind, ThreadId, TurnEnd,
};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Session;
use crate::runner::ThreadCommand;
use crate::store::{SessionStore, StoreError};

/// A thread of an open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadView {
    /// Id of the thread.
    pub id: ThreadId,
    /// Key that the caller chose for the thread.
    pub key: String,
    /// What it is doing.
    pub status: StatusKind,
}

/// A prompt to a thread.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// Id chosen by the caller, which makes sending it idempotent.
    pub id: Option<PromptId>,
    /// Text of the prompt.
    pub content: String,
    /// Files and images.
    pub attachments: Vec<Part>,
    /// The person who asks.
    pub author: Option<Author>,
    /// Where the answer is to be sent, for the embedding application.
    pub reply_to: Option<String>,
    /// Model for this prompt.
    pub model: Option<String>,
    /// Role for this prompt.
    pub role: Option<String>,
    /// JSON Schema of the required result.
    pub schema: Option<Value>,
    /// How to queue it if the thread is busy; by default the thread's mode.
    pub mode: Option<QueueMode>,
    /// Only ask for a review of the changes, without a model call.
    pub review: bool,
    /// Key of the thread; by default `default`.
    pub thread: Option<String>,
    /// Limits of the turn, children included.
    pub limits: Limits,
}

/// The outcome of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How the turn ended.
    pub reason: TurnEnd,
    /// The model's last text.
    pub text: String,
    /// The structured result, if the prompt has a schema and the result is valid.
    pub result: Option<Value>,
    /// The error, if the turn failed.
    pub error: Option<ErrorInfo>,
}

impl Prompt {
    /// Fills in a new queued prompt. `mode` is that of the thread.
    pub(super) fn into_queued(self, new: QueuedPrompt, mode: QueueMode) -> QueuedPrompt {
        QueuedPrompt {
            id: self.id.unwrap_or_else(|| new.id.clone()),
            content: self.content,
            attachments: self.attachments,
            author: self.author,
            reply_to: self.reply_to,
            model: self.model,
            role: self.role,
            limits: self.limits,
            mode: if self.review {
                QueueMode::Followup
            } else {
                self.mode.unwrap_or(mode)
            },
            review: self.review,
            result_schema: self.schema,
            ..new
        }
    }
}

impl<T: Into<String>> From<T> for Prompt {
    fn from(content: T) -> Self {
        Self {
            content: content.into(),
            ..Self::default()
        }
    }
}

impl Session {
    /// Waits until a prompt's turn has ended, and returns its outcome. A prompt that was merged
    /// into another one has that one's outcome.
    pub async fn wait_for_answer(&self, prompt: &PromptId) -> Result<Answer, StoreError> {
        let shared = self.shared();
        let mut events = self.subscribe(self.last_event().await?);
        loop {
            if let Some(answer) = stored_answer(&*shared.store, self.id(), prompt).await? {
                return Ok(answer);
            }
            loop {
                match events.next().await? {
                    Some(notice) if is_turn_end(&notice.event.kind) => break,
                    Some(_) => {}
                    None => return Err(self.close_reason()),
                }
            }
        }
    }

    /// Waits until a thread has no unfinished prompt.
    pub(crate) async fn wait_for_thread(&self, thread: &ThreadId) -> Result<(), StoreError> {
        let shared = self.shared();
        let mut events = self.subscribe(self.last_event().await?);
        loop {
            let record = shared.store.snapshot(self.id()).await?;
            let mut prompts = record.iter().flat_map(|record| &record.prompts);
            if prompts.all(|prompt| prompt.thread != *thread) {
                return Ok(());
            }
            loop {
                match events.next().await? {
                    Some(notice) if is_turn_end(&notice.event.kind) => break,
                    Some(_) => {}
                    None => return Err(self.close_reason()),
                }
            }
        }
    }

    /// Waiting prompts of a thread, in queue order.
    pub async fn waiting_prompts(
        &self,
        thread: &ThreadId,
    ) -> Result<Vec<QueuedPrompt>, StoreError> {
        let record = self.shared().store.snapshot(self.id()).await?;
        let prompts = record.map(|record| record.prompts).unwrap_or_default();
        let is_waiting = |prompt: &QueuedPrompt| {
            prompt.thread == *thread
                && prompt.status == PromptStatus::Waiting
                && !prompt.needs_position()
        };
        let mut waiting: Vec<_> = prompts.into_iter().filter(is_waiting).collect();
        waiting.sort_by_key(|prompt| prompt.order);
        Ok(waiting)
    }

    /// Removes a waiting prompt from the queue and returns it. `None` if it is not waiting.
    pub async fn withdraw_prompt(
        &self,
        thread: &ThreadId,
        prompt: &PromptId,
    ) -> Result<Option<QueuedPrompt>, StoreError> {
        let Some(running) = self.thread_by_id(thread) else {
            return Ok(None);
        };
        let (reply, answer) = oneshot::channel();
        let prompt = prompt.clone();
        self.send(&running, ThreadCommand::WithdrawPrompt { prompt, reply })?;
        answer.await.map_err(|_| self.close_reason())?
    }
}

pub(super) fn is_turn_end(kind: &EventKind) -> bool {
    matches!(kind, EventKind::TurnEnd { .. })
}

/// The outcome of a prompt, or of the one that it was merged into; `None` if it has not ended.
pub(super) async fn stored_answer(
    store: &dyn SessionStore,
    session: &SessionId,
    prompt: &PromptId,
) -> Result<Option<Answer>, StoreError> {
    let mut id = prompt.clone();
    let end = loop {
        let stored = store.prompt(session, &id).await?;
        let stored = stored.ok_or_else(|| StoreError::NotFound {
            kind: "prompt",
            id: id.to_string(),
        })?;
        match (stored.collected_in, stored.end) {
            (Some(into), _) => id = into,
            (None, Some(end)) => break end,
            (None, None) => return Ok(None),
        }
    };
    let entry = match &end.answer {
        Some(entry) => store.entry(session, entry).await?,
        None => None,
    };
    let (text, result) = match entry.map(|entry| entry.kind) {
        Some(EntryKind::Message(message)) => (message.content(), message.result),
        _ => (String::new(), None),
    };
    Ok(Some(Answer {
        reason: end.reason,
        text,
        result,
        error: end.error,
    }))
}
