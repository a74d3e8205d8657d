//! Waiting for a run that is recorded in a SQLite file.
//!
//! The record is a table `threads` with the columns `thread_id` and `status`,
//! whoever keeps it. It is only read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::paths::{Watch, WatchError};
use crate::time::Deadline;

/// The values of `status` after which a run does not change any more.
pub const ENDED: [&str; 4] = ["completed", "error", "cancelled", "continued"];

/// How often the record is read when nothing tells that it changed: on file
/// systems without notice, such as network ones.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long a writer may keep the record locked before that is an error.
const BUSY: Duration = Duration::from_secs(5);

/// Why a run could not be waited for.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The file is missing, no SQLite file, or has no such table.
    #[error("cannot read the record {}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The record knows no such run.
    #[error("no run {thread_id:?} is recorded in {}", path.display())]
    NoRun {
        /// The file.
        path: PathBuf,
        /// The run.
        thread_id: String,
    },
    /// The file could not be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// Waits until a recorded run has ended, at most for `timeout`: then `None`.
/// Gives the status it ended with, one of [`ENDED`].
pub fn run(
    record: &Path,
    thread_id: &str,
    timeout: Option<Duration>,
) -> Result<Option<String>, RunError> {
    let deadline = Deadline::after(timeout);
    let failed = |source| RunError::Record {
        path: record.to_owned(),
        source,
    };
    let busy = deadline.left_within(BUSY);
    let connection = open(record, busy).map_err(failed)?;
    // Watched before it is read, so that no change falls between.
    let mut beside = record.as_os_str().to_owned();
    beside.push("-wal");
    let watch = Watch::over(&[record.to_owned(), beside.into()])?;
    loop {
        let status = status(&connection, thread_id).map_err(failed)?;
        let status = status.ok_or_else(|| RunError::NoRun {
            path: record.to_owned(),
            thread_id: thread_id.to_owned(),
        })?;
        if ENDED.contains(&status.as_str()) {
            return Ok(Some(status));
        }
        if deadline.has_passed() {
            return Ok(None);
        }
        let look_again = deadline.left_within(LOOK_AGAIN);
        watch.wait(Deadline::after(Some(look_again)))?;
    }
}

fn open(record: &Path, busy: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(record, flags)?;
    connection.busy_timeout(busy)?;
    Ok(connection)
}

fn status(connection: &Connection, thread_id: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT status FROM threads WHERE thread_id = ?1")?
        .query_row([thread_id], |row| row.get(0))
        .optional()
}
