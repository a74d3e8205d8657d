//! What is written of a session, and what waits in it and below it.

use rye_protocol::{Gate, GateId, Session as SessionData, SessionId};

use super::Engine;
use crate::store::StoreError;

impl Engine {
    /// What is written of a session, open or not; none if there is no such session.
    pub async fn session_data(&self, id: &SessionId) -> Result<Option<SessionData>, StoreError> {
        let record = self.inner.store.record(id).await?;
        Ok(record.map(|record| record.session))
    }

    /// A gate, ended or not; none if there is no such gate.
    pub async fn gate(&self, id: &GateId) -> Result<Option<Gate>, StoreError> {
        self.inner.store.gate(id).await
    }

    /// Gates that wait for a decision in a session and in those below it, whether or not
    /// these are open: after a crash a task opens its session when it gets to it, and nobody
    /// tells of its gates anew.
    pub async fn gates_below(&self, id: &SessionId) -> Result<Vec<Gate>, StoreError> {
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
