//! What a thread has of its own beside its history: a role, a model, a mode. It holds from
//! the next prompt on.

use rye_protocol::{QueueMode, Thread};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Session;
use crate::runner::{Mail, ROLE};
use crate::store::StoreError;

/// What a thread has of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSettings {
    /// Its role; else the session's. A prompt may name another.
    pub role: Option<String>,
    /// Its model; else the session's. A prompt and a role may name another.
    pub model: Option<String>,
    /// What becomes of prompts that come while it is busy, where they do not say.
    pub mode: QueueMode,
}

impl ThreadSettings {
    /// Those of a thread.
    pub fn of(thread: &Thread) -> Self {
        let role = thread.metadata.get(ROLE).and_then(Value::as_str);
        Self {
            role: role.map(str::to_owned),
            model: thread.model.clone(),
            mode: thread.mode,
        }
    }

    pub(crate) fn put(self, thread: &mut Thread) {
        match self.role {
            Some(role) => drop(thread.metadata.insert(ROLE.to_owned(), json!(role))),
            None => drop(thread.metadata.remove(ROLE)),
        }
        thread.model = self.model;
        thread.mode = self.mode;
    }
}

impl Session {
    /// What a thread has of its own; nothing, if it is not there.
    pub async fn thread_settings(&self, key: &str) -> Result<ThreadSettings, StoreError> {
        let record = self.shared().store.record(self.id()).await?;
        let threads = record.map(|record| record.threads).unwrap_or_default();
        let thread = threads.iter().find(|thread| thread.key == key);
        Ok(thread.map(ThreadSettings::of).unwrap_or_default())
    }

    /// Gives a thread something of its own; it is made if it is not there. It is written
    /// down when this returns, and holds for prompts that have not begun.
    pub async fn set_thread(&self, key: &str, settings: ThreadSettings) -> Result<(), StoreError> {
        let running = self.thread_for(key).await?;
        let mode = settings.mode;
        let (reply, answer) = oneshot::channel();
        self.send(&running, Mail::Set { settings, reply })?;
        answer.await.map_err(|_| self.over())??;
        self.set_mode(key, mode);
        Ok(())
    }
}
