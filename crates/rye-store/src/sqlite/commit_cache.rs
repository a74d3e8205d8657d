//! The writing connection, with a cache of what the last commits looked up. The cache is valid
//! as long as only commits of this connection write to the session.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::path::Path;

use rusqlite::Connection;
use rye_engine::store::Lease;
use rye_protocol::{EntryId, SessionId};

use super::error::DbResult;
use super::file;
use super::log::{LastAppended, Log};
use super::prompts::LastPrompt;
use super::threads::ThreadRow;

/// Maximum number of cached sessions.
const MAX_SESSIONS: usize = 1_000;

/// The connection that writes. Dereferences to the plain connection.
pub(super) struct WriteConnection {
    db: Connection,
    /// SQLite's `data_version` at the last check of the file format. It changes when another
    /// connection writes.
    checked_version: Cell<Option<i64>>,
    cache: RefCell<CommitCache>,
}

/// State after the last commit of each session.
#[derive(Default)]
struct CommitCache {
    /// Number of changes that this connection had made by then. If it has made more, the cache
    /// is invalid.
    changes: u64,
    sessions: HashMap<SessionId, CommitState>,
}

/// What a commit needs to know about its session.
#[derive(Debug)]
pub(super) struct CommitState {
    /// The lease, which was valid.
    pub(super) lease: Lease,
    /// The end of the session's log, if the session exists.
    pub(super) log: Option<Log>,
    /// The thread that was used last; usually the next commit uses it too.
    pub(super) thread: Option<ThreadRow>,
    /// The last appended entry; usually the parent of the next one.
    pub(super) entry: Option<LastAppended<EntryId>>,
    /// The last appended prompt; usually the running one.
    pub(super) prompt: Option<LastPrompt>,
}

impl WriteConnection {
    pub(super) fn new(db: Connection) -> Self {
        Self {
            db,
            checked_version: Cell::new(None),
            cache: RefCell::default(),
        }
    }

    /// Checks, within a transaction, that another process has not changed the file's format.
    pub(super) fn check_format(&self, path: &Path) -> DbResult<()> {
        let mut query = self.db.prepare_cached("PRAGMA data_version")?;
        let version = Some(query.query_row([], |row| row.get(0))?);
        if self.checked_version.get() != version {
            self.clear_cache();
            if file::format_version(&self.db)? != file::VERSION {
                file::check_format(&self.db, path)?;
            }
            self.checked_version.set(version);
        }
        Ok(())
    }

    /// Removes the state after the last commit under a lease from the cache, if it is valid.
    pub(super) fn take_state(&self, lease: &Lease) -> Option<CommitState> {
        let mut cache = self.cache.borrow_mut();
        if cache.changes != self.db.total_changes() {
            cache.sessions.clear();
        }
        let state = cache.sessions.remove(&lease.session)?;
        (state.lease == *lease).then_some(state)
    }

    /// Caches the state after a commit that started with [`take_state`](Self::take_state).
    pub(super) fn store_state(&self, state: CommitState) {
        let mut cache = self.cache.borrow_mut();
        if cache.sessions.len() >= MAX_SESSIONS {
            cache.sessions.clear();
        }
        cache.sessions.insert(state.lease.session.clone(), state);
        cache.changes = self.db.total_changes();
    }

    /// Invalidates the cache, for instance after a rollback.
    pub(super) fn clear_cache(&self) {
        self.cache.borrow_mut().sessions.clear();
    }
}

impl Deref for WriteConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}
