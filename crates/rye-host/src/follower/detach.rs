//! Detaching from a session that waits for decisions.

use rye_engine::protocol::{GateId, SessionId};
use rye_engine::{Engine, Feed};
use tokio::sync::watch;

use crate::failure::Failure;

/// Gates that the user does not wait for. The follower detaches because of them once nothing
/// else runs in the session, because detaching ends what runs.
pub(super) struct Detach {
    gates: Vec<(GateId, Failure)>,
    /// Events of all sessions: a task may be the last to run.
    feed: Feed,
    /// Notifies of commits by the process that holds the session, if it is another one.
    commits: Option<watch::Receiver<()>>,
}

impl Detach {
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            gates: Vec::new(),
            feed: engine.feed(),
            commits: None,
        }
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
        session: &SessionId,
        printed: u64,
    ) -> Result<Option<Failure>, Failure> {
        if self.gates.is_empty() {
            return Ok(None);
        }
        // Before the state is read, so that no change is missed.
        match (engine.session(session), &self.commits) {
            (Some(_), _) => self.commits = None,
            (None, None) => self.commits = Some(engine.store().subscribe_commits()),
            (None, Some(_)) => {}
        }
        if !engine.is_quiescent(session).await? {
            return Ok(None);
        }
        if printed < engine.last_event(session).await? {
            return Ok(None);
        }
        let pending = engine.pending_gates_in_tree(session).await?;
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
            let notice = tokio::select! {
                notice = self.feed.next() => notice,
                () = committed(self.commits.as_mut()) => return,
            };
            match notice {
                // Events that are not stored change nothing.
                Ok(Some(notice)) if notice.event.sequence.is_none() => {}
                Ok(None) => return std::future::pending().await,
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}

/// Waits for the next commit of another process.
async fn committed(commits: Option<&mut watch::Receiver<()>>) {
    if let Some(commits) = commits
        && commits.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
