//! Thread settings and gate operations.

use rye_protocol::{Batch, Gate, GateId, GateRef, Op, QueueMode, Thread, ThreadId, ThreadStatus};
use tokio::sync::oneshot;

use super::session::{DEFAULT, ThreadHandle};
use super::{Engine, Session};
use crate::machine::Input;
use crate::runner::ThreadCommand;
use crate::store::StoreError;

/// Changes to a thread; an unset field stays unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadChange {
    /// How prompts are queued while the thread is busy.
    pub mode: Option<QueueMode>,
    /// Default model; an empty name restores the session's.
    pub model: Option<String>,
    /// Default role; an empty name restores the session's.
    pub role: Option<String>,
    /// What the thread is about.
    pub summary: Option<String>,
    /// Whether it accepts no prompts and runs nothing.
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
            thread.role = Some(role).filter(|role| !role.is_empty());
        }
        match (self.archived, thread.status) {
            (Some(true), _) => thread.status = ThreadStatus::Archived,
            (Some(false), ThreadStatus::Archived) => thread.status = ThreadStatus::Active,
            _ => {}
        }
    }
}

/// A thread's settings, valid from the next prompt on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSettings {
    /// Default role; the session's if unset.
    pub role: Option<String>,
    /// Default model; the session's if unset.
    pub model: Option<String>,
    /// How prompts are queued while the thread is busy.
    pub mode: QueueMode,
}

impl ThreadSettings {
    /// The settings of a thread.
    pub fn from_thread(thread: &Thread) -> Self {
        Self {
            role: thread.role.clone(),
            model: thread.model.clone(),
            mode: thread.mode,
        }
    }
}

impl Session {
    /// A thread's settings; the defaults if it does not exist.
    pub async fn thread_settings(&self, key: &str) -> Result<ThreadSettings, StoreError> {
        let record = self.shared().store.snapshot(self.id()).await?;
        let threads = record.map(|record| record.threads).unwrap_or_default();
        let thread = threads.iter().find(|thread| thread.key == key);
        Ok(thread.map(ThreadSettings::from_thread).unwrap_or_default())
    }

    /// Changes a thread, by default `default`, creating it if necessary. Returns its id once the
    /// change is committed.
    pub async fn change_thread(
        &self,
        key: Option<&str>,
        change: ThreadChange,
    ) -> Result<ThreadId, StoreError> {
        let key = key.unwrap_or(DEFAULT);
        let running = self.thread_for(key).await?;
        self.apply(&running, Input::ChangeThread(change.clone()))
            .await?;
        self.update_handle(key, &change);
        Ok(running.id().clone())
    }

    /// Withdraws a pending gate. The tool that opened it gets an error, and the turn continues.
    pub async fn withdraw_gate(&self, gate: &GateId, reason: &str) -> Result<(), StoreError> {
        let open = self.own_gate(gate).await?;
        if !open.status.is_pending() {
            return Err(StoreError::GateClosed(gate.clone()));
        }
        let running = self.thread_by_id(&open.origin.thread);
        let running = running.ok_or_else(|| self.close_reason())?;
        let input = Input::WithdrawGate(gate.clone(), reason.to_owned());
        self.apply(&running, input).await
    }

    /// Stores where a gate is shown, so that it can be updated when the gate closes.
    pub async fn record_gate_ref(&self, gate_ref: GateRef) -> Result<(), StoreError> {
        self.own_gate(&gate_ref.gate).await?;
        let shared = self.shared();
        let mut batch = Batch::default();
        batch.push(Op::PutGateRef(gate_ref));
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

    /// Applies an input to a thread and waits for the commit.
    async fn apply(&self, running: &ThreadHandle, input: Input) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(running, ThreadCommand::Apply(Box::new(input), reply))?;
        answer.await.map_err(|_| self.close_reason())?
    }
}

impl Engine {
    /// The places where a gate is shown, first one first.
    pub async fn gate_refs(&self, gate: &GateId) -> Result<Vec<GateRef>, StoreError> {
        self.inner.store.gate_refs(gate).await
    }
}
