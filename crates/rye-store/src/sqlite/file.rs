//! Opens the database file, and creates it with the tables of `schema.sql` if necessary.
//!
//! `user_version` in the header is the format version. Files of other formats are refused.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rye_engine::store::StoreError;

use super::error::{DbError, DbResult};
use super::writer_queue::{STALL_TIMEOUT, WriterQueue};
use super::{file_stamp, integrity, read_only};

const SCHEMA: &str = include_str!("schema.sql");

/// Format version of this program.
pub(super) const VERSION: u32 = 3;

/// Application id in the file's header: `RyeE`.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"RyeE");

/// Interval of attempts to enable the write-ahead log; SQLite does not wait there.
const WAL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a function with a connection that does not wait for locks of other processes.
pub(super) fn without_busy_timeout<T>(db: &Connection, work: impl FnOnce() -> T) -> T {
    // Neither call can fail.
    let _ = db.busy_timeout(Duration::ZERO);
    let result = work();
    let _ = db.busy_timeout(STALL_TIMEOUT);
    result
}

/// Opens a connection that writes, and the queue of writers. Creates a missing file.
pub(super) fn open_writer(path: &Path) -> DbResult<(Connection, WriterQueue)> {
    integrity::check_not_missing(path)?;
    create_if_missing(path)?;
    if !WriterQueue::exists(path) && fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
        // Creates no files next to the database of another program.
        check_format(&read_only::open(path)?, path)?;
    }
    let queue = WriterQueue::open(path)?;
    let permit = queue.acquire()?;
    integrity::check_before_writing(path)?;
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if db.is_readonly("main")? {
        let message = format!("{} is read-only", path.display());
        return Err(StoreError::Unavailable(message).into());
    }
    // Does not even copy the log into the file until the format is known.
    keep_wal(&db, integrity::has_wal(path))?;
    check_format(&db, path)?;
    enable_wal(&db)?;
    create_tables(&mut db, path)?;
    keep_wal(&db, false)?;
    drop(permit);
    Ok((db, queue))
}

/// Sets whether the last connection to close the file keeps the write-ahead log instead of
/// copying it into the file.
pub(super) fn keep_wal(db: &Connection, keep: bool) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep)?;
    Ok(())
}

/// Opens a connection that reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Creates a missing file, readable by its owner only.
fn create_if_missing(path: &Path) -> DbResult<()> {
    if !path.exists() {
        file_stamp::remove(path);
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600);
    match file.open(path) {
        Ok(_) => Ok(()),
        // An existing file must not be opened: closing it would release the locks that another
        // store of this process holds.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let message = format!("{}: {error}", path.display());
            Err(StoreError::Unavailable(message).into())
        }
    }
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(STALL_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(64);
    // Keeps SQLite from planning a query again for different parameters.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db)
}

/// Fails if the file belongs to another program or has another format.
pub(super) fn check_format(db: &Connection, path: &Path) -> DbResult<()> {
    let file = path.display();
    let version = format_version(db)?;
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && tables > 0 {
        return Err(DbError::Store(StoreError::Damaged(format!(
            "{file} is the database of another program"
        ))));
    }
    if version != VERSION && tables > 0 {
        return Err(DbError::Store(StoreError::Damaged(format!(
            "{file} has format {version}, but this version of Rye uses format {VERSION}"
        ))));
    }
    Ok(())
}

/// Format version of the file; 0 if it is empty.
pub(super) fn format_version(db: &Connection) -> rusqlite::Result<u32> {
    let mut version = db.prepare_cached("PRAGMA user_version")?;
    version.query_row([], |row| row.get(0))
}

fn enable_wal(db: &Connection) -> DbResult<()> {
    // Fails while another connection closes the file.
    let start = Instant::now();
    let mode: String = loop {
        match db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && start.elapsed() < STALL_TIMEOUT =>
            {
                thread::sleep(WAL_RETRY_INTERVAL);
            }
            mode => break mode?,
        }
    };
    if mode != "wal" {
        let message = format!("cannot enable the write-ahead log: the journal mode is `{mode}`");
        return Err(StoreError::Unavailable(message).into());
    }
    // Acknowledged commits survive a power failure.
    db.pragma_update(None, "synchronous", "full")?;
    // Keeps the journals of savepoints out of temporary files.
    db.pragma_update(None, "temp_store", "memory")?;
    // In KiB; fits all pages of a large group of jobs.
    db.pragma_update(None, "cache_size", -16_384)?;
    Ok(())
}

fn create_tables(db: &mut Connection, path: &Path) -> DbResult<()> {
    if format_version(db)? == VERSION {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have created the tables in the meantime.
    check_format(&transaction, path)?;
    if format_version(&transaction)? != VERSION {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}
