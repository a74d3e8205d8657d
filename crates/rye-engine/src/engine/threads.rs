//! Threads, as whoever has a session wants them; and gates of theirs.

use rye_protocol::{Batch, Gate, GateId, GateRef, Op, QueueMode, Thread, ThreadId, ThreadStatus};
use serde_json::Value;
use tokio::sync::oneshot;

use super::session::{DEFAULT, Running};
use super::{Engine, Session};
use crate::machine::Input;
use crate::runner::{Mail, ROLE};
use crate::store::StoreError;

/// How a thread is to be from now on. What is not said stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadChange {
    /// What becomes of a prompt that comes while it is busy, and does not say.
    pub mode: Option<QueueMode>,
    /// The model of prompts that name none; an empty name gives back the session's.
    pub model: Option<String>,
    /// The role of prompts that name none; an empty name gives back the session's.
    pub role: Option<String>,
    /// What it is about.
    pub summary: Option<String>,
    /// Whether it takes no more prompts, and stands still.
    pub archived: Option<bool>,
}

impl ThreadChange {
    pub(crate) fn apply(self, thread: &mut Thread) {
        thread.mode = self.mode.unwrap_or(thread.mode);
        if let Some(model) = self.model {
            thread.model = Some(model).filter(|model| !model.is_empty());
        }
        if self.summary.is_some() {
            thread.summary = self.summary;
        }
        if let Some(role) = self.role {
            thread.metadata.remove(ROLE);
            if !role.is_empty() {
                thread.metadata.insert(ROLE.to_owned(), Value::String(role));
            }
        }
        match (self.archived, thread.status) {
            (Some(true), _) => thread.status = ThreadStatus::Archived,
            (Some(false), ThreadStatus::Archived) => thread.status = ThreadStatus::Active,
            _ => {}
        }
    }
}

/// What a thread has of its own beside its history. It holds from the next prompt on.
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
    pub fn from_thread(thread: &Thread) -> Self {
        let role = thread.metadata.get(ROLE).and_then(Value::as_str);
        Self {
            role: role.map(str::to_owned),
            model: thread.model.clone(),
            mode: thread.mode,
        }
    }
}

impl Session {
    /// What a thread has of its own; nothing, if it is not there.
    pub async fn thread_settings(&self, key: &str) -> Result<ThreadSettings, StoreError> {
        let record = self.shared().store.snapshot(self.id()).await?;
        let threads = record.map(|record| record.threads).unwrap_or_default();
        let thread = threads.iter().find(|thread| thread.key == key);
        Ok(thread.map(ThreadSettings::from_thread).unwrap_or_default())
    }

    /// Changes a thread, `default` where none is named; makes it if it is not there. Gives
    /// its id once that is written.
    pub async fn change_thread(
        &self,
        key: Option<&str>,
        change: ThreadChange,
    ) -> Result<ThreadId, StoreError> {
        let key = key.unwrap_or(DEFAULT);
        let running = self.thread_for(key).await?;
        self.write(&running, Input::Change(change.clone())).await?;
        self.changed(key, &change);
        Ok(running.id().clone())
    }

    /// Withdraws a gate: nobody need decide any more. The tool that asked is told, and the
    /// model goes on.
    pub async fn withdraw_gate(&self, gate: &GateId, reason: &str) -> Result<(), StoreError> {
        let open = self.own_gate(gate).await?;
        if !open.status.is_pending() {
            return Err(StoreError::GateClosed(gate.clone()));
        }
        let running = self.running(&open.origin.thread);
        let running = running.ok_or_else(|| self.close_reason())?;
        let input = Input::WithdrawGate(gate.clone(), reason.to_owned());
        self.write(&running, input).await
    }

    /// Writes down where a gate is shown, so that whoever showed it can update it when it
    /// ends, also after a restart.
    pub async fn record_gate_ref(&self, shown: GateRef) -> Result<(), StoreError> {
        self.own_gate(&shown.gate).await?;
        let shared = self.shared();
        let mut batch = Batch::default();
        batch.push(Op::PutGateRef(shown));
        batch.ops.extend(shared.seal_rows(&batch));
        shared.store.commit(&shared.lease, batch).await.map(drop)
    }

    /// A gate of this session.
    async fn own_gate(&self, id: &GateId) -> Result<Gate, StoreError> {
        let gate = self.shared().store.gate(id).await?;
        let own = gate.filter(|gate| gate.origin.session == *self.id());
        own.ok_or_else(|| StoreError::NotFound {
            kind: "gate",
            id: id.to_string(),
        })
    }

    /// Has a thread take something in, and waits until that is written.
    async fn write(&self, running: &Running, input: Input) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(running, Mail::Do(Box::new(input), reply))?;
        answer.await.map_err(|_| self.close_reason())?
    }
}

impl Engine {
    /// Where a gate was shown, the first place first.
    pub async fn gate_refs(&self, gate: &GateId) -> Result<Vec<GateRef>, StoreError> {
        self.inner.store.gate_refs(gate).await
    }
}
