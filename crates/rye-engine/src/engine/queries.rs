//! Queries on stored sessions, prompts and gates.

use std::sync::Arc;

use rye_protocol::{
    EntryKind, Gate, GateId, PromptId, QueuedPrompt, Session as SessionData, SessionId, ThreadId,
};

use super::Engine;
use crate::store::{Holder, SessionSnapshot, SessionStore, StoreError};

/// How many entries before the end of a thread are searched for the model that answered.
const MAX_SEARCHED: usize = 20;

impl Engine {
    /// Whether a live process holds a session.
    pub async fn is_held(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.inner.is_held(id).await
    }

    /// The live processes that hold sessions.
    pub async fn holders(&self) -> Result<Vec<Holder>, StoreError> {
        self.inner.store.holders(None).await
    }

    /// The model of a session: the one that answered last in the thread that changed last, or else
    /// the one that answers its next prompt.
    pub async fn current_model(&self, id: &SessionId) -> Result<Option<String>, StoreError> {
        let store = &self.inner.store;
        let Some(record) = store.snapshot(id).await? else {
            return Ok(None);
        };
        let threads = record.threads.into_iter();
        let Some(thread) = threads.max_by_key(|thread| thread.updated_at) else {
            return Ok(record.session.model);
        };
        let mut leaf = thread.leaf.clone();
        for _ in 0..MAX_SEARCHED {
            let Some(entry) = leaf else { break };
            let Some(entry) = store.entry(id, &entry).await? else {
                break;
            };
            if let EntryKind::Message(message) = entry.kind
                && message.model.is_some()
            {
                return Ok(message.model);
            }
            leaf = entry.parent;
        }
        let default =
            || Some(self.inner.setup.models.default_name()).filter(|name| !name.is_empty());
        let model = thread.turn.map(|turn| turn.model).or(thread.model);
        Ok(model.or(record.session.model).or_else(default))
    }

    /// The stored data of a session; `None` if it does not exist.
    pub async fn session_data(&self, id: &SessionId) -> Result<Option<SessionData>, StoreError> {
        self.inner.store.session(id).await
    }

    /// The state of a session; `None` if it does not exist.
    pub async fn snapshot(&self, id: &SessionId) -> Result<Option<SessionSnapshot>, StoreError> {
        self.inner.store.snapshot(id).await
    }

    /// The store that the engine works with.
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.inner.store
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
