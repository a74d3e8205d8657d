//! Detaching from a session that waits for decisions.

use rye_engine::protocol::GateId;
use rye_engine::{Engine, Feed, Session};

use crate::failure::Failure;

/// Gates that the user does not wait for. The follower detaches because of them once nothing
/// else runs in the session, because detaching ends what runs.
pub(super) struct Detach {
    gates: Vec<(GateId, Failure)>,
    /// Events of all sessions: a task may be the last to run.
    feed: Feed,
}

impl Detach {
    pub(super) fn new(engine: &Engine) -> Self {
        let (gates, feed) = (Vec::new(), engine.feed());
        Self { gates, feed }
    }

    /// Registers a gate that the user does not wait for.
    pub(super) fn at_gate(&mut self, gate: GateId, failure: Failure) {
        self.gates.push((gate, failure));
    }

    /// Returns the failure to exit with, if the session is quiescent and all events up to `printed`
    /// are printed. Gates that were answered meanwhile no longer count.
    pub(super) async fn check(
        &mut self,
        engine: &Engine,
        session: &Session,
        printed: u64,
    ) -> Result<Option<Failure>, Failure> {
        if self.gates.is_empty() || !engine.is_quiescent(session.id()).await? {
            return Ok(None);
        }
        if printed < session.last_event().await? {
            return Ok(None);
        }
        let pending = engine.pending_gates_in_tree(session.id()).await?;
        let is_pending = |id: &GateId| pending.iter().any(|gate| gate.id == *id);
        self.gates.retain(|(gate, _)| is_pending(gate));
        Ok(self.gates.first().map(|(_, failure)| failure.clone()))
    }

    /// Waits for an event after which detaching may be possible.
    pub(super) async fn changed(&mut self) {
        if self.gates.is_empty() {
            return std::future::pending().await;
        }
        loop {
            match self.feed.next().await {
                // Events that are not stored change nothing.
                Ok(Some(notice)) if notice.event.sequence.is_none() => {}
                Ok(None) => return std::future::pending().await,
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}
