//! What is written of a session, and what waits in it and below it.

use rye_protocol::{
    Gate, GateId, PromptId, QueuedPrompt, Session as SessionData, SessionId, ThreadId,
};

use super::Engine;
use crate::store::StoreError;

impl Engine {
    /// What is written of a session, open or not; none if there is no such session.
    pub async fn session_data(&self, id: &SessionId) -> Result<Option<SessionData>, StoreError> {
        let record = self.inner.store.snapshot(id).await?;
        Ok(record.map(|record| record.session))
    }

    /// A gate, ended or not; none if there is no such gate.
    pub async fn gate(&self, id: &GateId) -> Result<Option<Gate>, StoreError> {
        self.inner.store.gate(id).await
    }

    /// Prompts of a session that have not ended, in order: those that run and those that wait.
    pub async fn unfinished_prompts(
        &self,
        id: &SessionId,
    ) -> Result<Vec<QueuedPrompt>, StoreError> {
        let record = self.inner.store.snapshot(id).await?;
        Ok(record.map(|record| record.prompts).unwrap_or_default())
    }

    /// Which prompt of a session a gate is asked for, and in which thread: a gate of a task is
    /// asked for the prompt whose call the task is. None if it is asked elsewhere.
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
        // A task ends with the turn that it is a call of.
        let record = self.inner.store.snapshot(top).await?;
        let threads = record.map(|record| record.threads).unwrap_or_default();
        let above = threads.into_iter().find(|it| it.id == thread);
        let turn = above.and_then(|above| above.turn);
        Ok(turn.map(|turn| (thread, turn.prompt)))
    }

    /// Gates that wait for a decision in a session and in those below it, whether or not
    /// these are open: after a crash a task opens its session when it gets to it, and nobody
    /// tells of its gates anew.
    pub async fn pending_gates_in_tree(&self, id: &SessionId) -> Result<Vec<Gate>, StoreError> {
        let mut gates = self.pending_gates(None).await?;
        let mut below = Vec::with_capacity(gates.len());
        for gate in &gates {
            below.push(self.is_below(gate.origin.session.clone(), id).await?);
        }
        let mut below = below.into_iter();
        gates.retain(|_| below.next() == Some(true));
        Ok(gates)
    }

    /// Whether a session is another one, or below it.
    async fn is_below(&self, mut session: SessionId, top: &SessionId) -> Result<bool, StoreError> {
        while session != *top {
            let data = self.session_data(&session).await?;
            match data.and_then(|data| data.parent) {
                Some(parent) => session = parent.session,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
