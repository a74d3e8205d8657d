//! Continuing after a compaction: queues a prompt with the model, role and limits of the prompt
//! that filled the context.

use rye_protocol::{
    Limits, Millis, PromptId, PromptStatus, QueueMode, QueuedPrompt, Thread, Turn, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::compaction::CONTINUE;

/// What the continuation inherits. Stored with the thread, because another host may continue.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Continuation {
    model: Option<String>,
    role: Option<String>,
    /// What is left of the prompt's limits.
    limits: Limits,
}

impl Continuation {
    pub(super) fn from_turn(prompt: &QueuedPrompt, turn: &Turn) -> Self {
        Self {
            model: Some(turn.model.clone()),
            role: prompt.role.clone(),
            limits: prompt.limits.remaining(&turn.usage),
        }
    }

    /// The model whose context is full, if a continuation is stored.
    pub(super) fn model(thread: &Thread) -> Option<String> {
        let model = thread.metadata.get(CONTINUE)?.get("model")?;
        model.as_str().map(str::to_owned)
    }

    pub(super) fn store_in(self, thread: &mut Thread) {
        thread.metadata.insert(CONTINUE.to_owned(), json!(self));
    }

    /// Removes and returns the stored continuation; an empty one if there is none.
    pub(super) fn take_from(thread: &mut Thread) -> Self {
        let stored = thread.metadata.remove(CONTINUE);
        stored
            .and_then(|stored| serde_json::from_value(stored).ok())
            .unwrap_or_default()
    }

    /// Whether its limits are already reached.
    pub(super) fn is_exhausted(&self, now: Millis) -> bool {
        self.limits.reached(&Usage::default(), now).is_some()
    }

    /// The prompt to queue.
    pub(super) fn prompt(&self, thread: &Thread, text: &str, now: Millis) -> QueuedPrompt {
        let mut metadata = Map::new();
        metadata.insert(CONTINUE.to_owned(), json!(true));
        QueuedPrompt {
            id: PromptId::new(),
            session: thread.session.clone(),
            thread: thread.id.clone(),
            order: 0,
            content: text.to_owned(),
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
