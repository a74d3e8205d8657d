//! Session lifecycle: create, open, restore and close, including child sessions.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use rye_protocol::{CallState, Phase, Session as SessionData, SessionId, SessionStatus};

use super::{Inner, ParentBudget, Session, Shared};
use crate::child;
use crate::compaction::Settings;
use crate::sandbox::{OpenSandbox, SandboxSpec};
use crate::setup::Setup;
use crate::store::{Claim, Lease, SessionFilter, SessionSnapshot, StoreError};

impl Inner {
    pub(crate) fn open_session(&self, id: &SessionId) -> Option<Session> {
        let open = self.open.lock();
        open.get(id).filter(|session| session.is_open()).cloned()
    }

    /// The open children of a session.
    pub(super) fn open_children(&self, parent: &SessionId) -> Vec<Session> {
        let open = self.open.lock();
        let is_child = |session: &&Session| {
            let data = session.data();
            let data_parent = data.parent.as_ref();
            session.is_open() && data_parent.is_some_and(|it| it.session == *parent)
        };
        open.values().filter(is_child).cloned().collect()
    }

    /// The session at the top of the tree that an open session belongs to.
    pub(crate) fn root_of(&self, id: &SessionId) -> SessionId {
        let mut root = id.clone();
        while let Some(session) = self.open_session(&root)
            && let Some(parent) = &session.data().parent
        {
            root = parent.session.clone();
        }
        root
    }

    fn register(&self, session: Session) -> Session {
        let mut open = self.open.lock();
        open.insert(session.id().clone(), session.clone());
        drop(open);
        self.watchers.notify(session.id());
        session
    }

    /// Forgets an open session, unless it was opened again.
    pub(crate) fn forget(&self, closed: &Shared) {
        let mut open = self.open.lock();
        let id = &closed.lease.session;
        let is_same = |session: &Session| std::ptr::eq(session.shared(), closed);
        if open.get(id).is_some_and(is_same) {
            open.remove(id);
        }
    }

    /// The lock that serialises opening a session.
    pub(super) fn open_lock(&self, id: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.open_locks.lock();
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }

    /// Creates a session, or opens the existing one with the same id and owner.
    pub(super) async fn create_or_open(
        self: &Arc<Self>,
        mut data: SessionData,
        spec: &SandboxSpec,
        parent: Option<ParentBudget>,
    ) -> Result<Session, StoreError> {
        let lock = self.open_lock(&data.id);
        let guard = lock.lock().await;
        if let Some(open) = self.open_session(&data.id) {
            check_same(&open.data(), &data)?;
            return Ok(open);
        }
        let lease = self.store.claim(&data.id, Claim::IfFree).await?;
        // Read after the claim: until then another host might have created it.
        let Some(record) = self.store.snapshot(&data.id).await? else {
            let parts = Box::pin(self.parts_of_claimed(&lease, &data, spec)).await?;
            data.sandbox = Some(parts.opened.reference.clone());
            let session = Session::create(self, lease, data, parts, parent).await?;
            return Ok(self.register(session));
        };
        if let Err(differs) = check_same(&record.session, &data) {
            self.store.release(&lease).await?;
            return Err(differs);
        }
        let restored = Box::pin(self.restore(lease, record, parent)).await?;
        drop(guard);
        self.close_orphans(restored).await
    }

    pub(super) async fn open(
        self: &Arc<Self>,
        id: &SessionId,
        claim: Claim,
        parent: Option<ParentBudget>,
    ) -> Result<Session, StoreError> {
        let lock = self.open_lock(id);
        let guard = lock.lock().await;
        if let Some(open) = self.open_session(id) {
            return Ok(open);
        }
        let lease = self.store.claim(id, claim).await?;
        let record = self.store.snapshot(id).await?;
        let Some(record) = record else {
            self.store.release(&lease).await?;
            let (kind, id) = ("session", id.to_string());
            return Err(StoreError::NotFound { kind, id });
        };
        if record.session.run.is_some() {
            self.store.release(&lease).await?;
            return Err(StoreError::SingleCall(id.clone()));
        }
        let restored = Box::pin(self.restore(lease, record, parent)).await?;
        drop(guard);
        self.close_orphans(restored).await
    }

    /// What a session runs with; the error says why it cannot run.
    pub(super) async fn setup_of(&self, data: &SessionData) -> Result<Arc<Setup>, String> {
        let chosen = match &self.setups {
            Some(setups) => setups.setup(data).await?,
            None => None,
        };
        Ok(chosen.unwrap_or_else(|| Arc::clone(&self.setup)))
    }

    /// The setup of a session and its sandbox. A session that records no sandbox gets a new one,
    /// of the kind that `spec` names.
    pub(super) async fn parts_of(
        &self,
        data: &SessionData,
        spec: &SandboxSpec,
    ) -> Result<SessionParts, StoreError> {
        let invalid = |reason| StoreError::Setup(data.id.clone(), reason);
        let setup = self.setup_of(data).await.map_err(invalid)?;
        let compaction = setup.compaction(&data.settings).map_err(invalid)?;
        let provider = &*setup.sandboxes;
        let opened = if let Some(reference) = &data.sandbox {
            let opened = self.sandboxes.open(provider, reference).await;
            opened.map(|sandbox| OpenSandbox {
                reference: reference.clone(),
                sandbox,
            })
        } else {
            let workspace = data.workspace.clone();
            let spec = SandboxSpec {
                workspace,
                ..spec.clone()
            };
            self.sandboxes.create(provider, &spec).await
        };
        let opened = opened.map_err(|error| StoreError::Sandbox(data.id.clone(), error))?;
        Ok(SessionParts {
            setup,
            compaction,
            opened,
        })
    }

    /// Like [`parts_of`](Self::parts_of), and releases the session if it fails.
    pub(super) async fn parts_of_claimed(
        &self,
        lease: &Lease,
        data: &SessionData,
        spec: &SandboxSpec,
    ) -> Result<SessionParts, StoreError> {
        let parts = self.parts_of(data, spec).await;
        if parts.is_err() {
            self.store.release(lease).await?;
        }
        parts
    }

    /// Restores a session from its stored state and starts its threads.
    async fn restore(
        self: &Arc<Self>,
        lease: Lease,
        record: SessionSnapshot,
        parent: Option<ParentBudget>,
    ) -> Result<RestoredSession, StoreError> {
        let tasks = task_ids(&record);
        let is_child = parent.is_some();
        let spec = SandboxSpec::default();
        let parts = Box::pin(self.parts_of_claimed(&lease, &record.session, &spec)).await?;
        let session = Session::new(self, lease, record.session.clone(), parts, parent);
        // Until the stored threads are started, nobody else may start one.
        let creating_thread = session.inner.creating_thread.lock().await;
        // A repeated tool call looks up its session.
        self.register(session.clone());
        let start = async {
            session.clear_failure().await?;
            // Commands posted while no host ran are applied before anything continues.
            let shared = session.shared();
            let commands = shared.store.pending_commands(&shared.lease).await?;
            if !commands.is_empty() {
                session.suspend();
            }
            session.restore(record).await?;
            drop(creating_thread);
            session.drain_inbox().await?;
            if !commands.is_empty() {
                session.end_suspension()?;
            }
            Ok(())
        };
        if let Err(error) = start.await {
            session.close().await?;
            return Err(error);
        }
        Ok(RestoredSession {
            session,
            tasks,
            is_child,
        })
    }

    /// Closes children whose calls have ended. The session's open lock must be free: creating a
    /// child takes the children lock first and the child's open lock second.
    async fn close_orphans(
        self: &Arc<Self>,
        restored: RestoredSession,
    ) -> Result<Session, StoreError> {
        let id = restored.session.id();
        // The caller that opens a child already holds the children lock.
        let _guard = if restored.is_child {
            None
        } else {
            Some(self.children.lock().await)
        };
        for child in self.store.sessions(children_of(id)).await? {
            if child.status != SessionStatus::Terminated && !restored.tasks.contains(&child.id) {
                Box::pin(self.close_orphan(&child.id)).await?;
            }
        }
        Ok(restored.session)
    }

    /// Creates or opens a child session. Runs in its own task, so that it completes and can be
    /// closed even if the caller is dropped.
    pub(crate) async fn child(
        self: &Arc<Self>,
        data: SessionData,
        parent: ParentBudget,
    ) -> Result<Session, StoreError> {
        let guard = Arc::clone(&self.children).lock_owned().await;
        let (engine, id) = (Arc::clone(self), data.id.clone());
        let created = tokio::spawn(async move {
            let _guard = guard;
            let spec = SandboxSpec::default();
            engine.create_or_open(data, &spec, Some(parent)).await
        });
        created.await.unwrap_or_else(|_| {
            let (kind, id) = ("session", id.to_string());
            Err(StoreError::NotFound { kind, id })
        })
    }

    /// Closes the child session of an aborted call.
    pub(crate) async fn close_child(self: &Arc<Self>, id: &SessionId) -> Result<(), StoreError> {
        let _guard = self.children.lock().await;
        match self.open_session(id) {
            Some(session) => {
                session.abort(None).await?;
                self.terminate(&session).await
            }
            None => Box::pin(self.close_orphan(id)).await,
        }
    }

    /// Marks a session as terminated and closes it.
    pub(crate) async fn terminate(&self, session: &Session) -> Result<(), StoreError> {
        session.set_status(SessionStatus::Terminated, None).await?;
        session.close().await
    }

    /// Closes a child session whose call has ended.
    async fn close_orphan(self: &Arc<Self>, id: &SessionId) -> Result<(), StoreError> {
        let lease = match self.store.claim(id, Claim::IfFree).await {
            // Another process has opened it.
            Err(StoreError::InUse { .. }) => return Ok(()),
            lease => lease?,
        };
        let record = self.store.snapshot(id).await?;
        let is_terminated =
            |record: &SessionSnapshot| record.session.status == SessionStatus::Terminated;
        let Some(record) = record.filter(|record| !is_terminated(record)) else {
            return self.store.release(&lease).await;
        };
        let spec = SandboxSpec::default();
        let parts = Box::pin(self.parts_of_claimed(&lease, &record.session, &spec)).await?;
        let session = Session::new(self, lease, record.session.clone(), parts, None);
        session.suspend();
        session.restore(record).await?;
        session.abort(None).await?;
        self.terminate(&session).await
    }
}

pub(super) fn children_of(parent: &SessionId) -> SessionFilter {
    SessionFilter {
        parent: Some(parent.clone()),
        limit: usize::MAX,
        ..SessionFilter::default()
    }
}

/// What a session is opened with.
pub(super) struct SessionParts {
    pub(super) setup: Arc<Setup>,
    /// The compaction settings of the session.
    pub(super) compaction: Arc<Settings>,
    pub(super) opened: OpenSandbox,
}

/// A restored session and the ids of children it may have.
struct RestoredSession {
    session: Session,
    tasks: BTreeSet<SessionId>,
    is_child: bool,
}

/// Whether an existing session is the requested one.
pub(super) fn check_same(
    existing: &SessionData,
    requested: &SessionData,
) -> Result<(), StoreError> {
    let is_same = existing.user_id == requested.user_id
        && existing.org_id == requested.org_id
        && existing.purpose == requested.purpose
        && existing.parent == requested.parent;
    if is_same {
        return Ok(());
    }
    let (kind, id) = ("session", requested.id.to_string());
    Err(StoreError::Conflict { kind, id })
}

/// The ids that the children of unfinished calls would have.
fn task_ids(record: &SessionSnapshot) -> BTreeSet<SessionId> {
    let mut tasks = BTreeSet::new();
    for thread in &record.threads {
        let Some(turn) = &thread.turn else {
            continue;
        };
        if let Phase::Tools { calls, .. } = &turn.phase {
            let open = calls.iter().filter(|call| call.state != CallState::Ended);
            tasks.extend(
                open.map(|call| child::id(&record.session.id, &thread.id, &turn.prompt, &call.id)),
            );
        }
    }
    tasks
}
