//! The connection that writes, and what it remembers from one commit to the next: most often
//! the next is of the same session, and nobody has written in between.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::path::Path;

use rusqlite::Connection;
use rye_engine::store::Lease;
use rye_protocol::ThreadId;

use super::error::Outcome;
use super::file;
use super::log::{Log, Newest};

pub(super) struct Book {
    db: Connection,
    /// The file's state when it was last found to be of our version. SQLite counts on when
    /// another connection writes.
    checked: Cell<Option<i64>>,
    left: RefCell<Option<(u64, Place)>>,
}

/// Where a commit has left off.
pub(super) struct Place {
    /// Under this lease, which held.
    pub(super) lease: Lease,
    /// The session's log, if it is there.
    pub(super) log: Option<Log>,
    /// The thread that was looked for last, which is most often the next one too.
    pub(super) thread: Option<(ThreadId, i64)>,
    /// The entry that was appended last, which most often is the next one's parent.
    pub(super) entry: Option<Newest>,
}

impl Book {
    pub(super) fn new(db: Connection) -> Self {
        Self {
            db,
            checked: Cell::new(None),
            left: RefCell::new(None),
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

    /// Remembers where a commit has left off, which is about to be written.
    pub(super) fn leave_off(&self, place: Place) {
        self.left.replace(Some((self.db.total_changes(), place)));
    }

    /// Where the last commit has left off, if it was under this lease and nothing was
    /// written since.
    pub(super) fn take_up(&self, lease: &Lease) -> Option<Place> {
        let (changes, place) = self.left.take()?;
        (changes == self.db.total_changes() && place.lease == *lease).then_some(place)
    }

    /// After something has failed, nothing is known any more.
    pub(super) fn forget(&self) {
        self.left.replace(None);
    }
}

impl Deref for Book {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}
