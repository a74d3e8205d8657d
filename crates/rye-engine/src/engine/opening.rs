//! Sessions made, opened and ended, and their children with them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, Weak};

use rye_protocol::{
    Archive, CallState, Phase, Purpose, Session as SessionData, SessionId, SessionStatus,
};

use super::{Above, Inner, Session};
use crate::child;
use crate::store::{Claim, Lease, SessionFilter, SessionSnapshot, StoreError};

impl Inner {
    pub(crate) fn is_open(&self, id: &SessionId) -> Option<Session> {
        let open = self.open.lock();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        open.get(id).filter(|session| session.is_open()).cloned()
    }

    pub(crate) async fn archive(&self, id: &SessionId) -> Result<Option<Archive>, StoreError> {
        self.store.archive(id).await
    }

    /// The children of a session that are open here.
    pub(super) fn open_children(&self, parent: &SessionId) -> Vec<Session> {
        let open = self.open.lock();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        let of_parent = |session: &&Session| {
            let data = session.data();
            let above = data.parent.as_ref();
            session.is_open() && above.is_some_and(|above| above.session == *parent)
        };
        open.values().filter(of_parent).cloned().collect()
    }

    fn keep(&self, session: Session) -> Session {
        let open = self.open.lock();
        let mut open = open.unwrap_or_else(PoisonError::into_inner);
        open.insert(session.id().clone(), session.clone());
        session
    }

    /// Whoever opens a session goes through its door, one after the other.
    fn door(&self, id: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let doors = self.doors.lock();
        let mut doors = doors.unwrap_or_else(PoisonError::into_inner);
        doors.retain(|_, door| door.strong_count() > 0);
        if let Some(door) = doors.get(id).and_then(Weak::upgrade) {
            return door;
        }
        let door = Arc::default();
        doors.insert(id.clone(), Arc::downgrade(&door));
        door
    }

    /// Makes a session, or opens the one of the same id if it is the same.
    pub(super) async fn make(
        self: &Arc<Self>,
        data: SessionData,
        above: Option<Above>,
    ) -> Result<Session, StoreError> {
        let door = self.door(&data.id);
        let alone = door.lock().await;
        if let Some(open) = self.is_open(&data.id) {
            same(&open.data(), &data)?;
            return Ok(open);
        }
        let lease = self.store.claim(&data.id, Claim::IfFree).await?;
        // Looked for only now: before, another host might still have made it.
        let Some(record) = self.store.snapshot(&data.id).await? else {
            let session = Session::create(self, lease, data, above).await?;
            return Ok(self.keep(session));
        };
        if let Err(differs) = same(&record.session, &data) {
            self.store.release(&lease).await?;
            return Err(differs);
        }
        let opened = self.restore(lease, record, above).await?;
        drop(alone);
        self.opened(opened).await
    }

    pub(super) async fn open(
        self: &Arc<Self>,
        id: &SessionId,
        claim: Claim,
        above: Option<Above>,
    ) -> Result<Session, StoreError> {
        let door = self.door(id);
        let alone = door.lock().await;
        if let Some(open) = self.is_open(id) {
            return Ok(open);
        }
        let lease = self.store.claim(id, claim).await?;
        let record = self.store.snapshot(id).await?;
        let Some(record) = record else {
            self.store.release(&lease).await?;
            let (kind, id) = ("session", id.to_string());
            return Err(StoreError::NotFound { kind, id });
        };
        if record.session.purpose == Purpose::Run {
            self.store.release(&lease).await?;
            return Err(StoreError::SingleCall(id.clone()));
        }
        let opened = self.restore(lease, record, above).await?;
        drop(alone);
        self.opened(opened).await
    }

    /// Lets a session go on from its record.
    async fn restore(
        self: &Arc<Self>,
        lease: Lease,
        record: SessionSnapshot,
        above: Option<Above>,
    ) -> Result<Restored, StoreError> {
        let tasks = tasks(&record);
        let is_child = above.is_some();
        let session = Session::new(self, lease, record.session.clone(), above);
        // A tool that is run again looks for its session.
        let session = self.keep(session);
        let going_on = async {
            session.mend().await?;
            session.restore(record).await
        };
        if let Err(error) = going_on.await {
            session.close().await?;
            return Err(error);
        }
        // Orders that came while no host was there.
        session.look().await?;
        Ok(Restored {
            session,
            tasks,
            is_child,
        })
    }

    /// Ends the children of a session whose calls have ended without them. Its door is open
    /// again by now: a child is made with the lock on children first and its door second.
    async fn opened(self: &Arc<Self>, restored: Restored) -> Result<Session, StoreError> {
        let id = restored.session.id();
        // Whoever opens a child has it already.
        let _alone = if restored.is_child {
            None
        } else {
            Some(self.children.lock().await)
        };
        for child in self.store.sessions(children_of(id)).await? {
            if child.status != SessionStatus::Terminated && !restored.tasks.contains(&child.id) {
                Box::pin(self.end_orphan(&child.id)).await?;
            }
        }
        Ok(restored.session)
    }

    /// A child, made or found again. Once begun it is made, also if whoever wants it is
    /// gone, so that it can be ended.
    pub(crate) async fn child(
        self: &Arc<Self>,
        data: SessionData,
        above: Above,
    ) -> Result<Session, StoreError> {
        let alone = Arc::clone(&self.children).lock_owned().await;
        let (engine, id) = (Arc::clone(self), data.id.clone());
        let made = tokio::spawn(async move {
            let _alone = alone;
            engine.make(data, Some(above)).await
        });
        made.await.unwrap_or_else(|_| {
            let (kind, id) = ("session", id.to_string());
            Err(StoreError::NotFound { kind, id })
        })
    }

    /// Ends a child whose call was ended.
    pub(crate) async fn end_child(self: &Arc<Self>, id: &SessionId) -> Result<(), StoreError> {
        let _alone = self.children.lock().await;
        match self.is_open(id) {
            Some(session) => {
                session.abort(None).await?;
                self.end(&session).await
            }
            None => Box::pin(self.end_orphan(id)).await,
        }
    }

    /// Nothing more is asked of a session.
    pub(crate) async fn end(&self, session: &Session) -> Result<(), StoreError> {
        session.set_status(SessionStatus::Terminated).await?;
        session.close().await?;
        let open = self.open.lock();
        open.unwrap_or_else(PoisonError::into_inner)
            .remove(session.id());
        Ok(())
    }

    /// Ends a child that nobody has: the call that it was has ended without it.
    async fn end_orphan(self: &Arc<Self>, id: &SessionId) -> Result<(), StoreError> {
        let lease = match self.store.claim(id, Claim::IfFree).await {
            // Somebody has opened it by itself.
            Err(StoreError::InUse { .. }) => return Ok(()),
            lease => lease?,
        };
        let record = self.store.snapshot(id).await?;
        let over = |record: &SessionSnapshot| record.session.status == SessionStatus::Terminated;
        let Some(record) = record.filter(|record| !over(record)) else {
            return self.store.release(&lease).await;
        };
        let session = Session::new(self, lease, record.session.clone(), None);
        session.halt();
        session.restore(record).await?;
        session.abort(None).await?;
        self.end(&session).await
    }
}

pub(super) fn children_of(parent: &SessionId) -> SessionFilter {
    SessionFilter {
        parent: Some(parent.clone()),
        limit: usize::MAX,
        ..SessionFilter::default()
    }
}

/// A session that goes on, and which children it may have.
struct Restored {
    session: Session,
    tasks: BTreeSet<SessionId>,
    is_child: bool,
}

/// Whether a session that is there is the one that is wanted.
fn same(there: &SessionData, wanted: &SessionData) -> Result<(), StoreError> {
    let same = there.user_id == wanted.user_id
        && there.org_id == wanted.org_id
        && there.purpose == wanted.purpose
        && there.parent == wanted.parent;
    if same {
        return Ok(());
    }
    let (kind, id) = ("session", wanted.id.to_string());
    Err(StoreError::Conflict { kind, id })
}

/// The sessions that calls under way may be.
fn tasks(record: &SessionSnapshot) -> BTreeSet<SessionId> {
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
