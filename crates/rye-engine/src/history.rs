//! What a tool may read of the record: its own session, the one above and those below.

use std::sync::Arc;

use rye_protocol::{Entry, EntryId, Session, SessionId, Thread};

use crate::engine::Inner;
use crate::store::{Record, SessionFilter, SessionStore, StoreError};
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
}

/// A session and its threads, as far as whoever asks may know them.
#[derive(Debug, Clone, PartialEq)]
pub struct Related {
    /// Whose it is.
    pub relation: Relation,
    /// It.
    pub session: Session,
    /// Its threads, in the order in which they were made.
    pub threads: Vec<Thread>,
}

impl Related {
    fn new(relation: Relation, record: Record) -> Self {
        Self {
            relation,
            session: record.session,
            threads: record.threads,
        }
    }
}

/// Reads the record of a session, of its parent and of its children, and of no other.
#[derive(Debug, Clone)]
pub struct History {
    store: Arc<dyn SessionStore>,
    own: SessionId,
}

impl History {
    /// This session, its parent, and its children: at most `most`, the newest first.
    pub async fn related(&self, most: usize) -> Result<Vec<Related>, StoreError> {
        let own = self.record(&self.own).await?;
        let parent = own.session.parent.clone();
        let mut all = vec![Related::new(Relation::Own, own)];
        if let Some(parent) = parent {
            // One that was removed is not there to be read.
            let record = self.store.record(&parent.session).await?;
            all.extend(record.map(|record| Related::new(Relation::Parent, record)));
        }
        let filter = SessionFilter {
            parent: Some(self.own.clone()),
            limit: most,
            ..SessionFilter::default()
        };
        for child in self.store.sessions(filter).await? {
            let record = self.store.record(&child.id).await?;
            all.extend(record.map(|record| Related::new(Relation::Child, record)));
        }
        Ok(all)
    }

    /// The session of an id, if it may be read; `None` for all others, there or not.
    pub async fn session(&self, id: &SessionId) -> Result<Option<Related>, StoreError> {
        let own = self.record(&self.own).await?;
        if *id == self.own {
            return Ok(Some(Related::new(Relation::Own, own)));
        }
        let above = own.session.parent;
        let is_parent = above.is_some_and(|above| above.session == *id);
        let record = self.store.record(id).await?;
        Ok(record.and_then(|record| {
            let above = record.session.parent.as_ref();
            let is_child = above.is_some_and(|above| above.session == self.own);
            match (is_parent, is_child) {
                (true, _) => Some(Related::new(Relation::Parent, record)),
                (_, true) => Some(Related::new(Relation::Child, record)),
                _ => None,
            }
        }))
    }

    /// What was said and done in a thread, from its first entry to its last.
    pub async fn path(&self, of: &Related, thread: &Thread) -> Result<Vec<Entry>, StoreError> {
        match &thread.leaf {
            Some(leaf) => self.store.path(&of.session.id, leaf).await,
            None => Ok(Vec::new()),
        }
    }

    async fn record(&self, id: &SessionId) -> Result<Record, StoreError> {
        let record = self.store.record(id).await?;
        record.ok_or_else(|| StoreError::NotFound {
            what: "session",
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
            item: None,
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
