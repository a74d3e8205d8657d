//! Queries on stored sessions, prompts and gates.

use rye_protocol::{
    Gate, GateId, PromptId, QueuedPrompt, Session as SessionData, SessionId, ThreadId,
};

use super::Engine;
use crate::store::StoreError;

impl Engine {
    /// Whether a live process holds a session.
    pub async fn is_held(&self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(!self.inner.store.holders(Some(id)).await?.is_empty())
    }

    /// The stored data of a session; `None` if it does not exist.
    pub async fn session_data(&self, id: &SessionId) -> Result<Option<SessionData>, StoreError> {
        self.inner.store.session(id).await
    }

    /// A gate, pending or closed; `None` if it does not exist.
    pub async fn gate(&self, id: &GateId) -> Result<Option<Gate>, StoreError> {
        self.inner.store.gate(id).await
    }

    /// Waiting and running prompts of a session, in queue order.
    pub async fn unfinished_prompts(
        &self,
        id: &SessionId,
    ) -> Result<Vec<QueuedPrompt>, StoreError> {
        let record = self.inner.store.snapshot(id).await?;
        Ok(record.map(|record| record.prompts).unwrap_or_default())
    }

    /// The prompt of session `top` that a gate belongs to, with its thread. A gate of a task
    /// belongs to the prompt whose call created the task. `None` if the gate belongs to another
    /// session.
    pub async fn owning_prompt(
        &self,
        gate: &Gate,
        top: &SessionId,
    ) -> Result<Option<(ThreadId, PromptId)>, StoreError> {
        let origin = &gate.origin;
        if origin.session == *top {
            return Ok(Some((origin.thread.clone(), origin.prompt.clone())));
        }
        let mut session = origin.session.clone();
        let thread = loop {
            let data = self.session_data(&session).await?;
            match data.and_then(|data| data.parent) {
                Some(parent) if parent.session == *top => break parent.thread,
                Some(parent) => session = parent.session,
                None => return Ok(None),
            }
        };
        // A task ends with the turn that created it.
        let record = self.inner.store.snapshot(top).await?;
        let threads = record.map(|record| record.threads).unwrap_or_default();
        let owner = threads.into_iter().find(|it| it.id == thread);
        let turn = owner.and_then(|owner| owner.turn);
        Ok(turn.map(|turn| (thread, turn.prompt)))
    }

    /// Pending gates of a session and its descendants. Reads the store, because after a crash the
    /// sessions of tasks may not be open yet.
    pub async fn pending_gates_in_tree(&self, id: &SessionId) -> Result<Vec<Gate>, StoreError> {
        let gates = self.inner.store.pending_gates_in_tree(id).await?;
        Ok(self.unexpired(gates))
    }
}
