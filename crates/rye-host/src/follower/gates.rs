//! Stream of pending gates.

use std::collections::{BTreeSet, VecDeque};

use rye_engine::protocol::{EventKind, Gate, GateId, SessionId};
use rye_engine::{Engine, Feed, MissedEvents};

use crate::failure::Failure;

/// The pending gates of a session and its tasks, each once.
pub(super) struct GateStream<'a> {
    engine: &'a Engine,
    session: &'a SessionId,
    feed: Feed,
    waiting: VecDeque<Gate>,
    seen: BTreeSet<GateId>,
    /// Session whose new gates arrive as events and are skipped here.
    excluded: Option<SessionId>,
}

impl<'a> GateStream<'a> {
    pub(super) async fn open(engine: &'a Engine, session: &'a SessionId) -> Result<Self, Failure> {
        let mut gates = Self {
            engine,
            session,
            feed: engine.feed(),
            waiting: VecDeque::new(),
            seen: BTreeSet::new(),
            excluded: None,
        };
        gates.load_pending().await?;
        Ok(gates)
    }

    /// Skips gates that this session opens from now on.
    pub(super) fn exclude(&mut self, session: &SessionId) {
        self.excluded = Some(session.clone());
    }

    /// Whether a gate of the excluded session has not been returned before.
    pub(super) fn is_new(&mut self, gate: &GateId) -> bool {
        let waits = self.waiting.iter().any(|it| it.id == *gate);
        !waits && self.seen.insert(gate.clone())
    }

    /// Queues the gates that are pending already, or whose events were missed.
    async fn load_pending(&mut self) -> Result<(), Failure> {
        let pending = self.engine.pending_gates_in_tree(self.session).await?;
        let excluded = self.excluded.as_ref();
        let is_included = |gate: &Gate| Some(&gate.origin.session) != excluded;
        self.waiting.extend(pending.into_iter().filter(is_included));
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
                Ok(Some(notice)) if self.excluded.as_ref() == Some(&notice.event.session) => {}
                Ok(Some(notice)) => {
                    if let EventKind::DecisionGate { gate } = notice.event.kind {
                        self.waiting.push_back(*gate);
                    }
                }
                Ok(None) => return std::future::pending().await,
                Err(MissedEvents(_)) => self.load_pending().await?,
            }
        }
    }
}
