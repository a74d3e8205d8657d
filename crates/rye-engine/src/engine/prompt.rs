//! Prompts and their answers.

use rye_protocol::{
    Author, EntryKind, EventKind, Limits, Part, PromptId, PromptStatus, QueueMode, QueuedPrompt,
    Role, StatusKind, ThreadId, TurnEnd,
};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Session;
use crate::runner::ThreadCommand;
use crate::store::StoreError;

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
    /// The error message, if the turn failed.
    pub error: Option<String>,
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
    /// into another one has that one's outcome; one that was removed from the queue is aborted.
    pub async fn wait_for_answer(&self, prompt: &PromptId) -> Result<Answer, StoreError> {
        let mut events = self.subscribe(0);
        let mut prompt = prompt.clone();
        let mut error = None;
        while let Some(notice) = events.next().await? {
            match notice.event.kind {
                EventKind::Error { error: failure }
                    if failure.ids.prompt.as_ref() == Some(&prompt) =>
                {
                    error = Some(failure.message);
                }
                EventKind::TurnEnd {
                    prompt: ended,
                    reason,
                } if ended == prompt => {
                    let thread = notice.event.thread.as_ref();
                    let (text, result) = self.last_text(thread, &prompt).await?;
                    return Ok(Answer {
                        reason,
                        text,
                        result,
                        error,
                    });
                }
                EventKind::PromptMerged {
                    prompt: merged,
                    into,
                } if merged == prompt => prompt = into,
                EventKind::PromptCancelled {
                    prompt: cancelled, ..
                } if cancelled == prompt => {
                    return Ok(Answer {
                        reason: TurnEnd::Abort,
                        text: String::new(),
                        result: None,
                        error,
                    });
                }
                _ => {}
            }
        }
        Err(self.close_reason())
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

    /// The model's last text for a prompt, and its structured result.
    async fn last_text(
        &self,
        thread: Option<&ThreadId>,
        prompt: &PromptId,
    ) -> Result<(String, Option<Value>), StoreError> {
        let Some(thread) = thread else {
            return Ok((String::new(), None));
        };
        let entries = self.entries(thread, None, usize::MAX).await?;
        let own = entries.iter().rev();
        let own = own.filter(|entry| entry.prompt.as_ref() == Some(prompt));
        let mut texts = own.filter_map(|entry| match &entry.kind {
            EntryKind::Message(message) if message.role == Role::Assistant => {
                Some((message.content(), message.result.clone()))
            }
            _ => None,
        });
        let last = texts.find(|(text, _)| !text.is_empty());
        Ok(last.unwrap_or_default())
    }
}
