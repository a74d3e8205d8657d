//! Going away from a session that waits for decisions.

use rye_engine::protocol::GateId;
use rye_engine::{Engine, Feed, Session};

use crate::cli::failure::Failure;

/// Gates at which nobody waits. Whoever follows the session leaves because of them as soon as
/// nothing else goes on in it: what runs beside them would be ended otherwise.
pub(super) struct Leaving {
    gates: Vec<(GateId, Failure)>,
    /// Of all sessions: a task may be the last that something goes on in.
    feed: Feed,
}

impl Leaving {
    pub(super) fn new(engine: &Engine) -> Self {
        let (gates, feed) = (Vec::new(), engine.feed());
        Self { gates, feed }
    }

    /// Nobody waits at this gate.
    pub(super) fn because_of(&mut self, gate: GateId, failure: Failure) {
        self.gates.push((gate, failure));
    }

    /// Whether to leave now, if all was told up to this event. What a gate asked that somebody
    /// has answered meanwhile is no reason any more.
    pub(super) async fn now(
        &mut self,
        engine: &Engine,
        session: &Session,
        told: u64,
    ) -> Result<Option<Failure>, Failure> {
        if self.gates.is_empty() || !engine.is_quiescent(session.id()).await? {
            return Ok(None);
        }
        if told < session.last_event().await? {
            return Ok(None);
        }
        let pending = engine.pending_gates_in_tree(session.id()).await?;
        let is_pending = |id: &GateId| pending.iter().any(|gate| gate.id == *id);
        self.gates.retain(|(gate, _)| is_pending(gate));
        Ok(self.gates.first().map(|(_, failure)| failure.clone()))
    }

    /// Waits for something after which one might leave.
    pub(super) async fn news(&mut self) {
        if self.gates.is_empty() {
            return std::future::pending().await;
        }
        loop {
            match self.feed.next().await {
                // What is not written down changes nothing.
                Ok(Some(notice)) if notice.event.sequence.is_none() => {}
                Ok(None) => return std::future::pending().await,
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}
