//! The connection that writes, and what it remembers from one commit to the next: most often
//! nobody else has written to the session in between.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::path::Path;

use rusqlite::Connection;
use rye_engine::store::Lease;
use rye_protocol::{EntryId, SessionId};

use super::error::Outcome;
use super::file;
use super::log::{Log, Newest};
use super::prompts::Last;
use super::threads::Known;

/// Of how many sessions something is remembered.
const MANY: usize = 1_000;

pub(super) struct Book {
    db: Connection,
    /// The file's state when it was last found to be of our version. SQLite counts on when
    /// another connection writes.
    checked: Cell<Option<i64>>,
    left: RefCell<Left>,
}

/// Where the last commits have left off.
#[derive(Default)]
struct Left {
    /// How many changes this connection had made by then: if it has made others, nothing of it
    /// holds.
    changes: u64,
    places: HashMap<SessionId, Place>,
}

/// Where a commit has left off.
#[derive(Debug)]
pub(super) struct Place {
    /// Under this lease, which held.
    pub(super) lease: Lease,
    /// The session's log, if it is there.
    pub(super) log: Option<Log>,
    /// The thread that was looked for last, which is most often the next one too.
    pub(super) thread: Option<Known>,
    /// The entry that was appended last, which most often is the next one's parent.
    pub(super) entry: Option<Newest<EntryId>>,
    /// The prompt that was appended last, which most often is the one that runs.
    pub(super) prompt: Option<Last>,
}

impl Book {
    pub(super) fn new(db: Connection) -> Self {
        Self {
            db,
            checked: Cell::new(None),
            left: RefCell::default(),
        }
    }

    /// Within a transaction: whether the file is still one that this program may write to.
    /// Another process may have brought it to a newer version.
    pub(super) fn still_ours(&self, path: &Path) -> Outcome<()> {
        let mut ask = self.db.prepare_cached("PRAGMA data_version")?;
        let state = Some(ask.query_row([], |row| row.get(0))?);
        if self.checked.get() != state {
            self.forget();
            if file::version(&self.db)? != file::VERSION {
                file::check(&self.db, path)?;
            }
            self.checked.set(state);
        }
        Ok(())
    }

    /// Where the last commit under a lease has left off, if nothing but commits was written
    /// since.
    pub(super) fn take_up(&self, lease: &Lease) -> Option<Place> {
        let mut left = self.left.borrow_mut();
        if left.changes != self.db.total_changes() {
            left.places.clear();
        }
        let place = left.places.remove(&lease.session)?;
        (place.lease == *lease).then_some(place)
    }

    /// Remembers where a commit has left off, which is about to be written, and which has
    /// [taken up](Self::take_up) where the one before it did.
    pub(super) fn leave_off(&self, place: Place) {
        let mut left = self.left.borrow_mut();
        if left.places.len() >= MANY {
            left.places.clear();
        }
        left.places.insert(place.lease.session.clone(), place);
        left.changes = self.db.total_changes();
    }

    /// After something has failed, nothing is known any more.
    pub(super) fn forget(&self) {
        self.left.borrow_mut().places.clear();
    }
}

impl Deref for Book {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}
