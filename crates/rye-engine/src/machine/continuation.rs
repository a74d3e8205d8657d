//! What an agent goes on with once its history is summed up: the words are ours; the
//! model, the role and the limits are those of the prompt that filled the context.

use rye_protocol::{
    Limits, Millis, PromptId, PromptStatus, QueueMode, QueuedPrompt, Thread, Turn, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::compaction::CONTINUE;

/// What is kept of a prompt until then. It is written with the thread: the host that goes on
/// may be another one.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Continuation {
    model: Option<String>,
    role: Option<String>,
    /// What is left of its limits.
    limits: Limits,
}

impl Continuation {
    pub(super) fn of(prompt: &QueuedPrompt, turn: &Turn) -> Self {
        Self {
            model: Some(turn.model.clone()),
            role: prompt.role.clone(),
            limits: prompt.limits.remaining(&turn.usage),
        }
    }

    /// The model whose context is full, where one is kept.
    pub(super) fn model(thread: &Thread) -> Option<String> {
        let model = thread.metadata.get(CONTINUE)?.get("model")?;
        model.as_str().map(str::to_owned)
    }

    pub(super) fn keep(self, thread: &mut Thread) {
        thread.metadata.insert(CONTINUE.to_owned(), json!(self));
    }

    /// What was kept; nothing in particular where nothing was.
    pub(super) fn take(thread: &mut Thread) -> Self {
        let kept = thread.metadata.remove(CONTINUE);
        kept.and_then(|kept| serde_json::from_value(kept).ok())
            .unwrap_or_default()
    }

    /// Whether its limits are reached.
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.limits.reached(&Usage::default(), now).is_some()
    }

    /// The prompt that nobody asked.
    pub(super) fn prompt(&self, thread: &Thread, words: &str, now: Millis) -> QueuedPrompt {
        let mut metadata = Map::new();
        metadata.insert(CONTINUE.to_owned(), json!(true));
        QueuedPrompt {
            id: PromptId::new(),
            session: thread.session.clone(),
            thread: thread.id.clone(),
            order: 0,
            content: words.to_owned(),
            attachments: Vec::new(),
            author: None,
            reply_to: None,
            model: self.model.clone(),
            role: self.role.clone(),
            limits: self.limits,
            mode: QueueMode::Followup,
            status: PromptStatus::Waiting,
            collect_until: None,
            metadata,
            created_at: now,
        }
    }
}
