//! Upkeep of a server's sessions: closes idle ones, continues those of dead processes, and hands
//! over all of them when the server stops.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{self, join_all};
use futures_util::{StreamExt as _, stream};
use rye_protocol::SessionId;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Engine, Session};
use crate::runner::ThreadCommand;
use crate::sandbox::FileAccess;
use crate::store::StoreError;
use crate::tool::LOGIN;

/// How long a session that had to be continued is left alone afterwards, doubled each time: a
/// session that stops every process that continues it must not keep all of them busy.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Maximum of that delay.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(10);

/// How many sessions are closed at once.
const MAX_CLOSING: usize = 64;

/// How a server keeps its sessions.
#[derive(Debug, Clone, Copy)]
pub struct Upkeep {
    /// How long a session does nothing before it is closed in memory.
    pub idle_after: Duration,
    /// How often to look for sessions of dead processes.
    pub interval: Duration,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            idle_after: Duration::from_mins(10),
            interval: Duration::from_secs(1),
        }
    }
}

/// What the upkeep remembers between its rounds.
#[derive(Default)]
struct Rounds {
    /// Last event of open sessions, and since when they are idle.
    idle: HashMap<SessionId, (u64, Instant)>,
    /// How often a session had to be continued, and when it may be again.
    continued: HashMap<SessionId, (u32, Instant)>,
}

impl Engine {
    /// Closes idle sessions and continues [unattended](rye_protocol::Session::unattended) ones that
    /// no process holds, until `stop` is cancelled. A closed session opens again when it gets
    /// something to do.
    pub async fn run_upkeep(&self, upkeep: Upkeep, stop: CancellationToken) {
        let mut rounds = Rounds::default();
        loop {
            if let Err(error) = Box::pin(self.continue_abandoned(&mut rounds)).await {
                tracing::warn!(%error, "cannot look for unfinished sessions");
            }
            self.close_idle(&mut rounds, upkeep.idle_after).await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(upkeep.interval) => {}
            }
        }
    }

    /// The number of sessions that are open in this process.
    pub fn open_sessions(&self) -> usize {
        self.inner.open.lock().len()
    }

    async fn continue_abandoned(&self, rounds: &mut Rounds) -> Result<(), StoreError> {
        let now = Instant::now();
        rounds
            .continued
            .retain(|_, (_, until)| now.duration_since(*until) < MAX_RETRY_DELAY);
        for id in self.inner.store.due(self.inner.clock.now()).await? {
            let is_delayed = rounds
                .continued
                .get(&id)
                .is_some_and(|(_, until)| now < *until);
            if is_delayed || self.inner.is_draining.load(Ordering::Acquire) {
                continue;
            }
            let attempts = rounds
                .continued
                .get(&id)
                .map_or(0, |(attempts, _)| *attempts);
            let delay = RETRY_DELAY.saturating_mul(1 << attempts.min(16));
            let until = now + delay.min(MAX_RETRY_DELAY);
            rounds.continued.insert(id.clone(), (attempts + 1, until));
            let data = self.inner.store.session(&id).await?;
            let is_ours = data.is_some_and(|it| it.unattended && it.imported_at.is_none());
            if !is_ours {
                continue;
            }
            match self.inner.ensure_running(&id).await {
                Ok(()) => tracing::info!(session = id.as_str(), "continued an unfinished session"),
                Err(error) => {
                    tracing::debug!(session = id.as_str(), %error, "cannot continue a session");
                }
            }
        }
        Ok(())
    }

    async fn close_idle(&self, rounds: &mut Rounds, after: Duration) {
        let now = Instant::now();
        let mut idle = HashMap::new();
        let mut due = Vec::new();
        for session in self.open_roots() {
            if !session.is_open() || !session.background_commands().is_empty() {
                continue;
            }
            let last = session.shared().bus.last_sequence();
            let known = rounds.idle.get(session.id());
            let known = known.filter(|(known, _)| *known == last);
            let since = known.map_or(now, |(_, since)| *since);
            if now.duration_since(since) < after {
                idle.insert(session.id().clone(), (last, since));
            } else {
                due.push(session);
            }
        }
        rounds.idle = idle;
        if due.is_empty() {
            return;
        }
        let closing = stream::iter(due).map(|session| async move {
            let closed = Box::pin(self.close_if_quiescent(&session)).await;
            let id = session.id();
            if let Err(error) = &closed {
                tracing::warn!(session = id.as_str(), %error, "cannot close an idle session");
            }
            closed.is_ok_and(|closed| closed).then(|| id.clone())
        });
        let closed = closing.buffer_unordered(MAX_CLOSING);
        let closed: HashSet<_> = closed.filter_map(future::ready).collect().await;
        if let Err(error) = Box::pin(self.reopen_posted(&closed)).await {
            tracing::warn!(%error, "cannot look for prompts to idle sessions");
        }
    }

    /// Opens sessions again that got something to do while they were closing: it is stored, and
    /// nobody has processed it.
    async fn reopen_posted(&self, closed: &HashSet<SessionId>) -> Result<(), StoreError> {
        let due = self.inner.store.due(self.inner.clock.now()).await?;
        for id in due.iter().filter(|id| closed.contains(*id)) {
            self.inner.ensure_running(id).await?;
        }
        Ok(())
    }

    /// Closes a session that does nothing; false if it works.
    async fn close_if_quiescent(&self, session: &Session) -> Result<bool, StoreError> {
        let id = session.id();
        let lock = self.inner.open_lock(id);
        let _guard = lock.lock().await;
        if !self.is_quiescent(id).await? || self.holds_resources(session).await? {
            return Ok(false);
        }
        session.close().await?;
        Ok(true)
    }

    /// Whether something would be lost if a quiescent session were closed: files in memory, or a
    /// login that a person is about to complete.
    async fn holds_resources(&self, session: &Session) -> Result<bool, StoreError> {
        let sandbox = session.sandbox();
        if sandbox.confinement().files == FileAccess::Memory {
            let files = sandbox.list(".").await;
            if files.map_or(true, |files| !files.is_empty()) {
                return Ok(true);
            }
        }
        let gates = self.inner.store.pending_gates_in_tree(session.id()).await?;
        Ok(gates.iter().any(|gate| gate.context.contains_key(LOGIN)))
    }

    /// Starts nothing more, lets running model calls and tools end, and releases each session as
    /// soon as what they did is committed. Another process can continue it at once.
    pub async fn drain(&self) {
        self.inner.is_draining.store(true, Ordering::Release);
        let drained = self.open_roots().into_iter().map(|session| async move {
            if let Err(error) = Box::pin(session.drain()).await {
                tracing::warn!(session = session.id().as_str(), %error, "cannot hand over a session");
            }
        });
        join_all(drained).await;
    }

    /// The open sessions that are not tasks.
    fn open_roots(&self) -> Vec<Session> {
        let open = self.inner.open.lock();
        let roots = open.values().filter(|it| it.data().parent.is_none());
        roots.cloned().collect()
    }
}

impl Session {
    /// Lets what runs in it and its tasks end, and closes it.
    async fn drain(&self) -> Result<(), StoreError> {
        self.settle().await;
        self.close().await
    }

    async fn settle(&self) {
        self.suspend();
        let children = self.shared().engine.upgrade();
        let children = children.map(|engine| engine.open_children(self.id()));
        let children = children.unwrap_or_default();
        let children = join_all(children.iter().map(|child| Box::pin(child.settle())));
        let mut threads = Vec::new();
        for running in self.all_threads() {
            let (reply, settled) = oneshot::channel();
            // A thread that has stopped is settled.
            if self.send(&running, ThreadCommand::Settle(reply)).is_ok() {
                threads.push(settled);
            }
        }
        future::join(children, join_all(threads)).await;
    }
}
