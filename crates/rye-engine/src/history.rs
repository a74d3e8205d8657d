//! What a tool may read of the record: its own session, the one above, those below, and
//! those beside it.

use std::sync::Arc;

use rye_protocol::{Entry, EntryId, Session, SessionId, Thread};

use crate::engine::Inner;
use crate::store::{SessionFilter, SessionSnapshot, SessionStore, StoreError};
use crate::tool::{ToolContext, ToolError};

/// How a session is related to the one that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It is the same.
    Own,
    /// It asked for this one.
    Parent,
    /// This one asked for it.
    Child,
    /// The same one asked for both.
    Sibling,
}

/// A session and its threads, as far as whoever asks may know them.
#[derive(Debug, Clone, PartialEq)]
pub struct RelatedSession {
    /// Whose it is.
    pub relation: Relation,
    /// It.
    pub session: Session,
    /// Its threads, in the order in which they were made.
    pub threads: Vec<Thread>,
}

impl RelatedSession {
    fn new(relation: Relation, record: SessionSnapshot) -> Self {
        Self {
            relation,
            session: record.session,
            threads: record.threads,
        }
    }
}

/// Reads the record of a session, of its parent, of its children and of other children of
/// its parent, and of no other.
#[derive(Debug, Clone)]
pub struct History {
    store: Arc<dyn SessionStore>,
    own: SessionId,
}

impl History {
    /// This session, its parent, its siblings and its children: of either at most `most`,
    /// the newest first.
    pub async fn related(&self, most: usize) -> Result<Vec<RelatedSession>, StoreError> {
        let own = self.record(&self.own).await?;
        let parent = own.session.parent.clone();
        let mut all = vec![RelatedSession::new(Relation::Own, own)];
        if let Some(parent) = parent {
            // One that was removed is not there to be read.
            let record = self.store.snapshot(&parent.session).await?;
            all.extend(record.map(|record| RelatedSession::new(Relation::Parent, record)));
            all.extend(self.below(&parent.session, Relation::Sibling, most).await?);
        }
        all.extend(self.below(&self.own, Relation::Child, most).await?);
        Ok(all)
    }

    /// The children of a session but this one, at most so many.
    async fn below(
        &self,
        parent: &SessionId,
        relation: Relation,
        most: usize,
    ) -> Result<Vec<RelatedSession>, StoreError> {
        let filter = SessionFilter {
            parent: Some(parent.clone()),
            // This one may be among them.
            limit: most.saturating_add(1),
            ..SessionFilter::default()
        };
        let mut sessions = self.store.sessions(filter).await?;
        sessions.retain(|session| session.id != self.own);
        sessions.truncate(most);
        let mut all = Vec::new();
        for session in sessions {
            let record = self.store.snapshot(&session.id).await?;
            all.extend(record.map(|record| RelatedSession::new(relation, record)));
        }
        Ok(all)
    }

    /// The session of an id, if it may be read; `None` for all others, there or not.
    pub async fn session(&self, id: &SessionId) -> Result<Option<RelatedSession>, StoreError> {
        let own = self.record(&self.own).await?;
        if *id == self.own {
            return Ok(Some(RelatedSession::new(Relation::Own, own)));
        }
        let parent = own.session.parent.map(|above| above.session);
        let record = self.store.snapshot(id).await?;
        Ok(record.and_then(|record| {
            let above = record.session.parent.as_ref().map(|above| &above.session);
            let relation = if parent.as_ref() == Some(id) {
                Relation::Parent
            } else if above == Some(&self.own) {
                Relation::Child
            } else if above.is_some() && above == parent.as_ref() {
                Relation::Sibling
            } else {
                return None;
            };
            Some(RelatedSession::new(relation, record))
        }))
    }

    /// What was said and done in a thread, from its first entry to its last.
    pub async fn path(
        &self,
        of: &RelatedSession,
        thread: &Thread,
    ) -> Result<Vec<Entry>, StoreError> {
        match &thread.leaf {
            Some(leaf) => self.store.path(&of.session.id, leaf).await,
            None => Ok(Vec::new()),
        }
    }

    async fn record(&self, id: &SessionId) -> Result<SessionSnapshot, StoreError> {
        let record = self.store.snapshot(id).await?;
        record.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })
    }
}

/// The last entries before one of them, or the last of all; and whether there are more
/// before those. None if that one is not among them.
pub(crate) fn page<'a>(
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
    /// What this tool may read of the record.
    pub fn history(&self) -> Result<History, ToolError> {
        let gone = || ToolError::failed("the session is closed");
        let engine: Arc<Inner> = self.engine.upgrade().ok_or_else(gone)?;
        Ok(History {
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
        fn all_pages_together_are_the_path(length in 0..40_usize, limit in 1..9_usize) {
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
    fn an_entry_of_elsewhere_is_no_place_to_read_on() {
        assert_eq!(page(&[entry(1)], Some(&entry(2).id), 1), None);
    }
}
