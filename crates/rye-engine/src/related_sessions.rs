//! Read access of tools to related sessions: their own, its parent, children and siblings.

use std::sync::Arc;

use rye_protocol::{Entry, EntryId, Session, SessionId, Thread};

use crate::engine::Inner;
use crate::store::{SessionFilter, SessionSnapshot, SessionStore, StoreError};
use crate::tool::{ToolContext, ToolError};

/// Relation of a session to the tool's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same session.
    Own,
    /// The session that started this one.
    Parent,
    /// A session that this one started.
    Child,
    /// Another session of the same parent.
    Sibling,
}

/// A related session with its threads.
#[derive(Debug, Clone, PartialEq)]
pub struct RelatedSession {
    /// Relation to the tool's session.
    pub relation: Relation,
    /// Data of the session.
    pub session: Session,
    /// Threads in order of creation.
    pub threads: Vec<Thread>,
}

impl RelatedSession {
    fn new(relation: Relation, snapshot: SessionSnapshot) -> Self {
        Self {
            relation,
            session: snapshot.session,
            threads: snapshot.threads,
        }
    }
}

/// Reads the records of a session, its parent, children and siblings, and of no other session.
#[derive(Debug, Clone)]
pub struct RelatedSessions {
    store: Arc<dyn SessionStore>,
    own: SessionId,
}

impl RelatedSessions {
    /// This session, its parent, and at most `limit` siblings and `limit` children, newest first.
    pub async fn list(&self, limit: usize) -> Result<Vec<RelatedSession>, StoreError> {
        let own = self.snapshot(&self.own).await?;
        let parent = own.session.parent.clone();
        let mut all = vec![RelatedSession::new(Relation::Own, own)];
        if let Some(parent) = parent {
            // The parent may have been removed.
            let snapshot = self.store.snapshot(&parent.session).await?;
            all.extend(snapshot.map(|snapshot| RelatedSession::new(Relation::Parent, snapshot)));
            all.extend(
                self.children(&parent.session, Relation::Sibling, limit)
                    .await?,
            );
        }
        all.extend(self.children(&self.own, Relation::Child, limit).await?);
        Ok(all)
    }

    /// At most `limit` children of a session, except this session.
    async fn children(
        &self,
        parent: &SessionId,
        relation: Relation,
        limit: usize,
    ) -> Result<Vec<RelatedSession>, StoreError> {
        let filter = SessionFilter {
            parent: Some(parent.clone()),
            // This session may be among them.
            limit: limit.saturating_add(1),
            ..SessionFilter::default()
        };
        let mut sessions = self.store.sessions(filter).await?;
        sessions.retain(|session| session.id != self.own);
        sessions.truncate(limit);
        let mut all = Vec::new();
        for session in sessions {
            let snapshot = self.store.snapshot(&session.id).await?;
            all.extend(snapshot.map(|snapshot| RelatedSession::new(relation, snapshot)));
        }
        Ok(all)
    }

    /// The session with this id if it is related; `None` for all other sessions.
    pub async fn session(&self, id: &SessionId) -> Result<Option<RelatedSession>, StoreError> {
        let own = self.snapshot(&self.own).await?;
        if *id == self.own {
            return Ok(Some(RelatedSession::new(Relation::Own, own)));
        }
        let parent = own.session.parent.map(|parent_ref| parent_ref.session);
        let snapshot = self.store.snapshot(id).await?;
        Ok(snapshot.and_then(|snapshot| {
            let parent_ref = snapshot
                .session
                .parent
                .as_ref()
                .map(|parent_ref| &parent_ref.session);
            let relation = if parent.as_ref() == Some(id) {
                Relation::Parent
            } else if parent_ref == Some(&self.own) {
                Relation::Child
            } else if parent_ref.is_some() && parent_ref == parent.as_ref() {
                Relation::Sibling
            } else {
                return None;
            };
            Some(RelatedSession::new(relation, snapshot))
        }))
    }

    /// The entries of a thread, from the first to the last.
    pub async fn path(
        &self,
        related: &RelatedSession,
        thread: &Thread,
    ) -> Result<Vec<Entry>, StoreError> {
        match &thread.leaf {
            Some(leaf) => self.store.path(&related.session.id, leaf).await,
            None => Ok(Vec::new()),
        }
    }

    async fn snapshot(&self, id: &SessionId) -> Result<SessionSnapshot, StoreError> {
        let snapshot = self.store.snapshot(id).await?;
        snapshot.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })
    }
}

/// The last `limit` entries, or those before `before`, and whether there are earlier ones. `None`
/// if `before` is not in the path.
pub fn page<'a>(
    path: &'a [Entry],
    before: Option<&EntryId>,
    limit: usize,
) -> Option<(&'a [Entry], bool)> {
    let end = match before {
        Some(before) => path.iter().position(|entry| entry.id == *before)?,
        None => path.len(),
    };
    let first = end.saturating_sub(limit);
    Some((&path[first..end], first > 0))
}

impl ToolContext {
    /// Read access to related sessions.
    pub fn related_sessions(&self) -> Result<RelatedSessions, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine: Arc<Inner> = self.engine.upgrade().ok_or_else(closed)?;
        Ok(RelatedSessions {
            store: Arc::clone(&engine.store),
            own: self.session.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rye_protocol::{EntryKind, Message, Millis, Role};

    use super::*;

    fn entry(number: usize) -> Entry {
        Entry {
            id: format!("entry-{number}").parse().unwrap(),
            session: "s".parse().unwrap(),
            thread: "t".parse().unwrap(),
            parent: None,
            prompt: None,
            kind: EntryKind::Message(Message::text(Role::User, "hi")),
            created_at: Millis(0),
            hash: String::new(),
        }
    }

    proptest! {
        #[test]
        fn pages_cover_the_path(length in 0..40_usize, limit in 1..9_usize) {
            let path: Vec<_> = (0..length).map(entry).collect();
            let (mut read, mut before): (Vec<Entry>, Option<EntryId>) = (Vec::new(), None);
            for _ in 0..=length {
                let (entries, more) = page(&path, before.as_ref(), limit).unwrap();
                prop_assert!(entries.len() == limit || !more);
                read.splice(0..0, entries.iter().cloned());
                before = entries.first().map(|entry| entry.id.clone());
                if !more {
                    break;
                }
            }
            prop_assert_eq!(read, path);
        }
    }

    #[test]
    fn unknown_entry_has_no_page() {
        assert_eq!(page(&[entry(1)], Some(&entry(2).id), 1), None);
    }
}
