//! What is asked, and what is said to it.

use rye_protocol::{
    Author, EntryKind, EventKind, Limits, Part, PromptId, PromptStatus, QueueMode, QueuedPrompt,
    Role, StatusKind, ThreadId, TurnEnd,
};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Session;
use crate::result::RESULT;
use crate::runner::Mail;
use crate::store::StoreError;

/// A thread, as somebody outside sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadView {
    /// Its id.
    pub id: ThreadId,
    /// Its key.
    pub key: String,
    /// What it is doing.
    pub status: StatusKind,
}

/// Something to be asked.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// Its id, where the caller has one.
    pub id: Option<PromptId>,
    /// What is asked.
    pub content: String,
    /// Files and images.
    pub attachments: Vec<Part>,
    /// Who asks.
    pub author: Option<Author>,
    /// Whom to answer.
    pub reply_to: Option<String>,
    /// The model for it.
    pub model: Option<String>,
    /// The role for it.
    pub role: Option<String>,
    /// The JSON Schema of the result that is wanted.
    pub schema: Option<Value>,
    /// What becomes of it if the thread is busy; else as the thread does.
    pub mode: Option<QueueMode>,
    /// The thread; else `default`.
    pub thread: Option<String>,
    /// How much it may use up, children included.
    pub limits: Limits,
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How it ended.
    pub reason: TurnEnd,
    /// What the model said last.
    pub text: String,
    /// The result, where a schema was given and it fits.
    pub result: Option<Value>,
    /// What went wrong.
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
    /// Waits until a prompt has ended, and gives what was said to it.
    pub async fn wait_for_answer(&self, prompt: &PromptId) -> Result<Answer, StoreError> {
        let mut events = self.subscribe(0);
        let mut error = None;
        while let Some(notice) = events.next().await? {
            match notice.event.kind {
                EventKind::Error { error: why } if why.ids.prompt.as_ref() == Some(prompt) => {
                    error = Some(why.message);
                }
                EventKind::TurnEnd {
                    prompt: ended,
                    reason,
                } if ended == *prompt => {
                    let (text, result) = self.said(notice.event.thread.as_ref(), prompt).await?;
                    return Ok(Answer {
                        reason,
                        text,
                        result,
                        error,
                    });
                }
                _ => {}
            }
        }
        Err(self.close_reason())
    }

    /// What waits for a thread, in order.
    pub async fn waiting_prompts(
        &self,
        thread: &ThreadId,
    ) -> Result<Vec<QueuedPrompt>, StoreError> {
        let record = self.shared().store.snapshot(self.id()).await?;
        let prompts = record.map(|record| record.prompts).unwrap_or_default();
        let waits = |prompt: &QueuedPrompt| {
            prompt.thread == *thread
                && prompt.status == PromptStatus::Waiting
                && !prompt.needs_position()
        };
        let mut waiting: Vec<_> = prompts.into_iter().filter(waits).collect();
        waiting.sort_by_key(|prompt| prompt.order);
        Ok(waiting)
    }

    /// Takes a prompt out of the queue that has not begun, and gives it back. None if it has
    /// begun, or is not there.
    pub async fn withdraw_prompt(
        &self,
        thread: &ThreadId,
        prompt: &PromptId,
    ) -> Result<Option<QueuedPrompt>, StoreError> {
        let Some(running) = self.running(thread) else {
            return Ok(None);
        };
        let (reply, answer) = oneshot::channel();
        let prompt = prompt.clone();
        self.send(&running, Mail::Withdraw { prompt, reply })?;
        answer.await.map_err(|_| self.close_reason())?
    }

    /// What the model said last to a prompt, and the result with it.
    async fn said(
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
        let mut spoken = own.filter_map(|entry| match &entry.kind {
            EntryKind::Message(message) if message.role == Role::Assistant => {
                Some((message.content(), message.metadata.get(RESULT).cloned()))
            }
            _ => None,
        });
        let spoken = spoken.find(|(text, _)| !text.is_empty());
        Ok(spoken.unwrap_or_default())
    }
}
