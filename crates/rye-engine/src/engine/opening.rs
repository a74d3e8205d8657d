//! Sessions made, opened and ended, and their children with them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use rye_protocol::{CallState, Phase, Session as SessionData, SessionId, SessionStatus};

use super::{Above, Inner, Session};
use crate::child;
use crate::store::{Claim, Record, SessionFilter, StoreError};

impl Inner {
    pub(crate) fn is_open(&self, id: &SessionId) -> Option<Session> {
        let open = self.open.lock();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        open.get(id).filter(|session| session.is_open()).cloned()
    }

    /// The children of a session that are open here.
    pub(super) fn open_children(&self, parent: &SessionId) -> Vec<Session> {
        let open = self.open.lock();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        let of_parent = |session: &&Session| {
            let above = session.data().parent;
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

    /// Makes a session, or opens the one of the same id if it is the same.
    pub(super) async fn make(
        self: &Arc<Self>,
        data: SessionData,
        above: Option<Above>,
    ) -> Result<Session, StoreError> {
        if let Some(record) = self.store.record(&data.id).await? {
            let there = &record.session;
            let same = there.user_id == data.user_id
                && there.purpose == data.purpose
                && there.parent == data.parent;
            if !same {
                let (what, id) = ("session", data.id.to_string());
                return Err(StoreError::Conflict { what, id });
            }
            return self.open(&data.id, Claim::IfFree, above).await;
        }
        let lease = self.store.claim(&data.id, Claim::IfFree).await?;
        let session = Session::create(self, lease, data, above).await?;
        Ok(self.keep(session))
    }

    pub(super) async fn open(
        self: &Arc<Self>,
        id: &SessionId,
        claim: Claim,
        above: Option<Above>,
    ) -> Result<Session, StoreError> {
        if let Some(open) = self.is_open(id) {
            return Ok(open);
        }
        let lease = self.store.claim(id, claim).await?;
        let record = self.store.record(id).await?;
        let Some(record) = record else {
            self.store.release(&lease).await?;
            let (what, id) = ("session", id.to_string());
            return Err(StoreError::NotFound { what, id });
        };
        let tasks = tasks(&record);
        let is_child = above.is_some();
        let session = Session::new(self, lease, record.session.clone(), above);
        // A tool that is run again looks for its session.
        let session = self.keep(session);
        if let Err(error) = session.restore(record).await {
            session.close().await?;
            return Err(error);
        }
        // Orders that came while no host was there.
        session.look().await?;
        // Whoever opens a child has it already.
        let _alone = if is_child {
            None
        } else {
            Some(self.children.lock().await)
        };
        for child in self.store.sessions(children_of(id)).await? {
            if child.status != SessionStatus::Terminated && !tasks.contains(&child.id) {
                Box::pin(self.end_orphan(&child.id)).await?;
            }
        }
        Ok(session)
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
            let (what, id) = ("session", id.to_string());
            Err(StoreError::NotFound { what, id })
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
            Err(StoreError::Held { .. }) => return Ok(()),
            lease => lease?,
        };
        let record = self.store.record(id).await?;
        let over = |record: &Record| record.session.status == SessionStatus::Terminated;
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

/// The sessions that calls under way may be.
fn tasks(record: &Record) -> BTreeSet<SessionId> {
    let mut tasks = BTreeSet::new();
    for thread in &record.threads {
        let Some(turn) = &thread.turn else {
            continue;
        };
        if let Phase::Tools { calls, .. } = &turn.phase {
            let open = calls.iter().filter(|call| call.state != CallState::Ended);
            tasks.extend(
                open.map(|call| child::id(&record.session.id, &thread.id, &turn.item, &call.id)),
            );
        }
    }
    tasks
}
