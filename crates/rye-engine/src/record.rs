//! Records sessions that no model drives: graph runs and single calls.
//!
//! A [`Recorder`] holds the lease of a session with one thread. Entries, gates and events are
//! collected and written by one [`commit`](Recorder::commit), which also seals them, so that such
//! a session is listed, verified, exported, forked and followed like any other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lillux::keys::SigningKey;
use rye_protocol::{
    Batch, CommandId, Entry, EntryId, EntryKind, EventKind, Gate, GateStatus, Millis, Op, Parent,
    Purpose, Resolution, Run, RunStatus, Session, SessionId, SessionStatus, Thread, ThreadId,
};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;

use crate::audit;
use crate::clock::{Clock as _, SystemClock};
use crate::store::{Claim, CommandKind, InboxMessage, Lease, SessionStore, StoreError};

/// Interval at which deadlines are checked, because the machine may be suspended.
const DEADLINE_CHECK: Duration = Duration::from_mins(1);

/// A session to record.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// Id of the session.
    pub id: SessionId,
    /// [`Purpose::Workflow`] or [`Purpose::Run`].
    pub purpose: Purpose,
    /// What runs.
    pub run: Run,
    /// The project directory.
    pub project: String,
    /// The thread that started it, if it is part of another session.
    pub parent: Option<Parent>,
    /// Number of ancestors.
    pub depth: u32,
    /// Id and key of its thread.
    pub thread: &'static str,
}

/// Writes a session that a graph or a single call drives.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<dyn SessionStore>,
    lease: Lease,
    key: Option<Arc<SigningKey>>,
    session: Session,
    thread: Thread,
    /// Commands to a process that held the session before.
    earlier: Vec<CommandId>,
    /// Changes since the last commit.
    ops: Vec<Op>,
    events: Vec<EventKind>,
}

impl Recorder {
    /// Claims a new session. The first commit writes it.
    pub async fn create(
        store: Arc<dyn SessionStore>,
        new: NewRecord,
        key: Option<Arc<SigningKey>>,
    ) -> Result<Self, StoreError> {
        let lease = store.claim(&new.id, Claim::IfFree).await?;
        if store.snapshot(&new.id).await?.is_some() {
            store.release(&lease).await?;
            let (kind, id) = ("session", new.id.to_string());
            return Err(StoreError::Conflict { kind, id });
        }
        let now = now();
        let session = Session {
            workspace: Some(new.project.clone()),
            project: Some(new.project),
            parent: new.parent,
            depth: new.depth,
            run: Some(new.run),
            ..Session::new(new.id, new.purpose, now)
        };
        let thread = Thread {
            id: ThreadId::try_from(new.thread.to_owned()).unwrap_or_else(|_| ThreadId::new()),
            ..Thread::new(session.id.clone(), new.thread, now)
        };
        let key_name = new.thread.to_owned();
        Ok(Self {
            store,
            lease,
            key,
            session,
            thread,
            earlier: Vec::new(),
            ops: Vec::new(),
            events: vec![EventKind::ThreadStart { key: key_name }],
        })
    }

    /// Claims an existing session; `None` if there is none. Commands that were posted to it are
    /// completed by the next commit.
    pub async fn open(
        store: Arc<dyn SessionStore>,
        id: &SessionId,
        key: Option<Arc<SigningKey>>,
    ) -> Result<Option<Self>, StoreError> {
        let lease = store.claim(id, Claim::IfFree).await?;
        let loaded = async {
            let snapshot = store.snapshot(id).await?;
            Ok((snapshot, store.pending_commands(&lease).await?))
        };
        let (snapshot, commands) = match loaded.await {
            Ok(loaded) => loaded,
            Err(error) => {
                store.release(&lease).await?;
                return Err(error);
            }
        };
        let thread = snapshot.and_then(|it| Some((it.session, it.threads.into_iter().next()?)));
        let Some((session, thread)) = thread else {
            store.release(&lease).await?;
            return Ok(None);
        };
        let earlier: Vec<_> = commands.into_iter().map(|it| it.id).collect();
        let completed = earlier.iter().cloned().map(Op::CompleteCommand);
        Ok(Some(Self {
            ops: completed.collect(),
            earlier,
            store,
            lease,
            key,
            session,
            thread,
            events: Vec::new(),
        }))
    }

    /// The session with its recorded progress.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Id of the thread.
    pub fn thread(&self) -> &ThreadId {
        &self.thread.id
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    /// The history of the session.
    pub async fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        match &self.thread.leaf {
            Some(leaf) => self.store.path(&self.session.id, leaf).await,
            None => Ok(Vec::new()),
        }
    }

    /// Appends an entry to the next commit.
    pub fn append(&mut self, kind: EntryKind) -> EntryId {
        let mut entry = Entry {
            id: EntryId::new(),
            session: self.session.id.clone(),
            thread: self.thread.id.clone(),
            parent: self.thread.leaf.clone(),
            prompt: None,
            kind,
            created_at: now(),
            hash: String::new(),
        };
        entry.hash = audit::entry_hash(&entry, &self.thread.leaf_hash);
        let id = entry.id.clone();
        self.thread.leaf = Some(id.clone());
        self.thread.leaf_hash.clone_from(&entry.hash);
        self.ops.push(Op::AppendEntry(Arc::new(entry)));
        self.events
            .push(EventKind::MessageEnd { entry: id.clone() });
        id
    }

    /// Adds an event to the next commit.
    pub fn event(&mut self, kind: EventKind) {
        self.events.push(kind);
    }

    /// Opens a gate with the next commit. Its question becomes part of the history.
    pub fn open_gate(&mut self, gate: &Gate) {
        self.append(EntryKind::DecisionGate {
            gate: gate.id.clone(),
            title: gate.title.clone(),
            question: Some(audit::question_hash(gate)),
        });
        self.ops.push(Op::PutGate(Arc::new(gate.clone())));
        let gate = Box::new(gate.clone());
        self.events.push(EventKind::DecisionGate { gate });
    }

    /// Closes a pending gate with the next commit.
    pub fn close_gate(&mut self, gate: Gate, status: GateStatus) {
        let id = gate.id.clone();
        self.events.push(match &status {
            GateStatus::Resolved { resolution } => EventKind::DecisionGateResolved {
                gate: id,
                resolution: resolution.clone(),
            },
            GateStatus::Withdrawn { reason, .. } => EventKind::DecisionGateWithdrawn {
                gate: id,
                reason: reason.clone(),
            },
            GateStatus::Expired { .. } | GateStatus::Pending => {
                EventKind::DecisionGateExpired { gate: id }
            }
        });
        self.ops
            .push(Op::PutGate(Arc::new(Gate { status, ..gate })));
    }

    /// Changes the progress; the next commit writes it. A stopped run is paused, unless it
    /// completed or is a single call, which cannot continue.
    pub fn set_run(&mut self, change: impl FnOnce(&mut Run)) {
        let purpose = self.session.purpose;
        let Some(run) = &mut self.session.run else {
            return;
        };
        change(run);
        run.ended_at = match run.status {
            RunStatus::Running => None,
            _ => Some(run.ended_at.unwrap_or_else(now)),
        };
        self.session.status = match run.status {
            RunStatus::Running => SessionStatus::Running,
            RunStatus::Completed => SessionStatus::Terminated,
            _ if purpose == Purpose::Run => SessionStatus::Terminated,
            _ => SessionStatus::Paused,
        };
    }

    /// Whether there is something to commit.
    pub fn has_changes(&self) -> bool {
        !self.ops.is_empty() || !self.events.is_empty()
    }

    /// Writes all changes in one transaction. After a failure, the same changes can be committed
    /// again. A caller that drops the future before its end counts the changes as written: the
    /// store applies commits in the order of the calls.
    pub async fn commit(&mut self) -> Result<(), StoreError> {
        let now = now();
        let (session, thread) = (self.session.clone(), self.thread.clone());
        self.session.updated_at = now;
        self.thread.updated_at = now;
        let (ops, events) = (
            std::mem::take(&mut self.ops),
            std::mem::take(&mut self.events),
        );
        let mut batch = Batch::default();
        batch.push(Op::PutSession(Arc::new(self.session.clone())));
        batch.ops.extend(ops.iter().cloned());
        for event in &events {
            batch.push_event(&self.thread.id, event.clone());
        }
        audit::complete_commit(&mut batch, &mut self.thread, now, self.key.as_deref());
        if let Err(error) = self.store.commit(&self.lease, batch).await {
            (self.session, self.thread) = (session, thread);
            (self.ops, self.events) = (ops, events);
            return Err(error);
        }
        Ok(())
    }

    /// A future that ends when an abort command is posted to the session.
    pub fn abort_requested(&self) -> impl Future<Output = ()> + Send + use<> {
        let (store, lease) = (Arc::clone(&self.store), self.lease.clone());
        let earlier = self.earlier.clone();
        async move {
            let mut posts = store.subscribe_posts();
            loop {
                if let Ok(true) = is_aborted(&*store, &lease, &earlier).await {
                    return;
                }
                wait_for_post(&mut posts, &lease.session).await;
            }
        }
    }

    /// Whether an abort command was posted since the session was claimed.
    pub async fn is_aborted(&self) -> Result<bool, StoreError> {
        is_aborted(&*self.store, &self.lease, &self.earlier).await
    }

    /// Like [`Self::is_aborted`], without a runtime, for a process that is about to exit.
    pub fn is_aborted_blocking(&self) -> Result<bool, StoreError> {
        block_on(self.is_aborted())
    }

    /// Releases the session.
    pub async fn release(self) -> Result<(), StoreError> {
        self.store.release(&self.lease).await
    }

    /// Commits and releases without a runtime, for a process that is about to exit. After a
    /// failure, the missing process shows that the run was interrupted.
    pub fn finish_blocking(mut self) -> Result<(), StoreError> {
        block_on(async {
            let committed = self.commit().await;
            let released = self.release().await;
            committed.and(released)
        })
    }
}

/// Runs store operations to their end on a thread of its own, because the caller may run within a
/// runtime.
fn block_on<T: Send>(
    work: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let unavailable = |error: io::Error| StoreError::Unavailable(error.to_string());
    std::thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.map_err(unavailable)?.block_on(work)
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, run);
        match thread.map_err(unavailable)?.join() {
            Ok(finished) => finished,
            Err(_) => Err(StoreError::Unavailable("the writer panicked".to_owned())),
        }
    })
}

async fn is_aborted(
    store: &dyn SessionStore,
    lease: &Lease,
    earlier: &[CommandId],
) -> Result<bool, StoreError> {
    let commands = store.pending_commands(lease).await?;
    let mut commands = commands.iter();
    Ok(commands.any(|it| it.kind == CommandKind::Abort && !earlier.contains(&it.id)))
}

/// Waits until something was posted to a session.
async fn wait_for_post(
    posts: &mut tokio::sync::broadcast::Receiver<SessionId>,
    session: &SessionId,
) {
    loop {
        match posts.recv().await {
            Ok(other) if other != *session => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return,
            // The store is read-only, so nothing can be posted.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits until a gate is closed, and returns how. Expires the gate at its deadline.
pub async fn wait_closed(store: &dyn SessionStore, gate: &Gate) -> Result<GateStatus, StoreError> {
    let mut posts = store.subscribe_posts();
    loop {
        let stored = store.gate(&gate.id).await?;
        match stored.map(|gate| gate.status) {
            Some(GateStatus::Pending) => {}
            Some(status) => return Ok(status),
            None => {
                let (kind, id) = ("gate", gate.id.to_string());
                return Err(StoreError::NotFound { kind, id });
            }
        }
        let left = gate.expires_at.map(|at| at.0.saturating_sub(now().0));
        let left = match left {
            Some(0) => {
                // The store turns a decision after the deadline into an expiry.
                let late = InboxMessage::Resolve {
                    gate: gate.id.clone(),
                    resolution: expiry(),
                };
                store.post(&gate.origin.session, late).await?;
                continue;
            }
            Some(left) => DEADLINE_CHECK.min(Duration::from_millis(left)),
            None => DEADLINE_CHECK,
        };
        let posted = wait_for_post(&mut posts, &gate.origin.session);
        // After a timeout the gate and its deadline are checked again.
        let _ = tokio::time::timeout(left, posted).await;
    }
}

/// A decision that the store rejects, because it comes after the deadline of its gate.
fn expiry() -> Resolution {
    Resolution {
        action: "".into(),
        value: Value::Null,
        by: "rye".to_owned(),
        at: now(),
        source: "deadline".to_owned(),
        receipt: None,
    }
}

/// The current time.
pub fn now() -> Millis {
    SystemClock::default().now()
}
