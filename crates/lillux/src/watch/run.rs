//! Waits for a run that another program records in a SQLite file.
//!
//! The file must have a table `threads` with the columns `thread_id` and `status`. It is opened
//! read-only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::paths::{Watch, WatchError};
use crate::time::Deadline;

/// The values of `status` of a run that has ended.
pub const FINAL_STATUSES: [&str; 4] = ["completed", "error", "cancelled", "continued"];

/// Poll interval for file systems without change notification, such as network ones.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// SQLite busy timeout: how long a writer may hold the lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of [`wait_for_run`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The file is missing, is not a SQLite file, or has no such table.
    #[error("cannot read the database {}: {source}", path.display())]
    Database {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// The table has no row for the run.
    #[error("no run {thread_id:?} in {}", path.display())]
    NoRun {
        /// The database file.
        path: PathBuf,
        /// The requested run.
        thread_id: String,
    },
    /// The file could not be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// Waits until a recorded run has ended and returns its status, one of [`FINAL_STATUSES`].
/// Returns `None` after `timeout`.
pub fn wait_for_run(
    database: &Path,
    thread_id: &str,
    timeout: Option<Duration>,
) -> Result<Option<String>, RunError> {
    let deadline = Deadline::after(timeout);
    let failed = |source| RunError::Database {
        path: database.to_owned(),
        source,
    };
    let busy = deadline.remaining_up_to(BUSY_TIMEOUT);
    let connection = open(database, busy).map_err(failed)?;
    // Watch before the first read, so that no change is missed in between.
    let mut write_ahead_log = database.as_os_str().to_owned();
    write_ahead_log.push("-wal");
    let watch = Watch::new(&[database.to_owned(), write_ahead_log.into()])?;
    loop {
        let status = status(&connection, thread_id).map_err(failed)?;
        let status = status.ok_or_else(|| RunError::NoRun {
            path: database.to_owned(),
            thread_id: thread_id.to_owned(),
        })?;
        if FINAL_STATUSES.contains(&status.as_str()) {
            return Ok(Some(status));
        }
        if deadline.has_passed() {
            return Ok(None);
        }
        let poll_interval = deadline.remaining_up_to(POLL_INTERVAL);
        watch.wait(Some(poll_interval))?;
    }
}

fn open(database: &Path, busy: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(busy)?;
    Ok(connection)
}

fn status(connection: &Connection, thread_id: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT status FROM threads WHERE thread_id = ?1")?
        .query_row([thread_id], |row| row.get(0))
        .optional()
}
