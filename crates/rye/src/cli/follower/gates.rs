//! Gates, as they are opened.

use std::collections::{BTreeSet, VecDeque};

use rye_engine::protocol::{EventKind, Gate, GateId, SessionId};
use rye_engine::{Engine, Feed, MissedEvents};

use crate::cli::failure::Failure;

/// The gates of a session and of those below it, each once.
pub(super) struct Gates<'a> {
    engine: &'a Engine,
    session: &'a SessionId,
    feed: Feed,
    waiting: VecDeque<Gate>,
    seen: BTreeSet<GateId>,
    /// Whose gates are heard of elsewhere, but for those that waited before.
    left_out: Option<SessionId>,
}

impl<'a> Gates<'a> {
    pub(super) async fn of(engine: &'a Engine, session: &'a SessionId) -> Result<Self, Failure> {
        let mut gates = Self {
            engine,
            session,
            feed: engine.feed(),
            waiting: VecDeque::new(),
            seen: BTreeSet::new(),
            left_out: None,
        };
        gates.look().await?;
        Ok(gates)
    }

    /// From now on, those of a session are heard of elsewhere.
    pub(super) fn leave_out(&mut self, session: &SessionId) {
        self.left_out = Some(session.clone());
    }

    /// Whether a gate that is heard of elsewhere was not known before.
    pub(super) fn is_first(&mut self, gate: &GateId) -> bool {
        let waits = self.waiting.iter().any(|it| it.id == *gate);
        !waits && self.seen.insert(gate.clone())
    }

    /// Those that wait already, or that were missed.
    async fn look(&mut self) -> Result<(), Failure> {
        let pending = self.engine.pending_gates_in_tree(self.session).await?;
        let left_out = self.left_out.as_ref();
        let own = |gate: &Gate| Some(&gate.origin.session) != left_out;
        self.waiting.extend(pending.into_iter().filter(own));
        Ok(())
    }

    pub(super) async fn next(&mut self) -> Result<Gate, Failure> {
        loop {
            while let Some(gate) = self.waiting.pop_front() {
                if self.seen.insert(gate.id.clone()) {
                    return Ok(gate);
                }
            }
            match self.feed.next().await {
                Ok(Some(notice)) if self.left_out.as_ref() == Some(&notice.event.session) => {}
                Ok(Some(notice)) => {
                    if let EventKind::DecisionGate { gate } = notice.event.kind {
                        self.waiting.push_back(*gate);
                    }
                }
                Ok(None) => return std::future::pending().await,
                Err(MissedEvents(_)) => self.look().await?,
            }
        }
    }
}
