//! The database file: opened, and checked before it is written to.
//!
//! Its header (`user_version`) says which format it has. A file of another format is refused.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rye_engine::store::StoreError;

use super::error::{Failure, Outcome};
use super::queue::{PATIENCE, Queue};
use super::{damage, reading, seen};

const SCHEMA: &str = include_str!("schema.sql");

/// The format that this program reads and writes.
pub(super) const VERSION: u32 = 1;

/// In the file's header: whose it is. The letters `RyeE`.
const APPLICATION: i32 = i32::from_be_bytes(*b"RyeE");

/// How often the switch to a write-ahead log is tried again: SQLite does not wait there.
const SWITCH_AGAIN: Duration = Duration::from_millis(10);

/// Runs something that fails at once if another process has the database locked.
pub(super) fn without_waiting<T>(db: &Connection, work: impl FnOnce() -> T) -> T {
    // Neither call can fail: both only set a number.
    let _ = db.busy_timeout(Duration::ZERO);
    let outcome = work();
    let _ = db.busy_timeout(PATIENCE);
    outcome
}

/// A connection that writes, and the queue in which it waits for its turns. The file is made
/// if it is not there.
pub(super) fn writer(path: &Path) -> Outcome<(Connection, Queue)> {
    damage::is_missing(path)?;
    make(path)?;
    if !Queue::is_there(path) && fs::metadata(path).is_ok_and(|it| it.len() > 0) {
        // The database of another program is left alone, and so is its folder.
        check(&reading::connect(path)?, path)?;
    }
    let queue = Queue::open(path)?;
    let turn = queue.turn()?;
    damage::look(path)?;
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if db.is_readonly("main")? {
        let message = format!("{} can only be read here", path.display());
        return Err(StoreError::Unavailable(message).into());
    }
    // Until it is known that it can be written to, nothing is: not even what is in its log.
    keep_log(&db, damage::has_log(path))?;
    check(&db, path)?;
    use_wal(&db)?;
    create_tables(&mut db, path)?;
    keep_log(&db, false)?;
    drop(turn);
    Ok((db, queue))
}

/// Whether the last one to close the file leaves its log as it is, rather than put it into the
/// file.
pub(super) fn keep_log(db: &Connection, keep: bool) -> rusqlite::Result<()> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep)?;
    Ok(())
}

/// A connection that reads.
pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Conversations are nobody else's business.
fn make(path: &Path) -> Outcome<()> {
    if !path.exists() {
        seen::forget(path);
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600);
    match file.open(path) {
        Ok(_) => Ok(()),
        // One that is there is not even opened: to close it again would take away the locks
        // that another store of this process has on it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let message = format!("{}: {error}", path.display());
            Err(StoreError::Unavailable(message).into())
        }
    }
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(PATIENCE)?;
    db.set_prepared_statement_cache_capacity(64);
    // Else SQLite plans anew at every call, in case another value had a better plan.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db)
}

/// Nothing is written to a file that is not ours, or not ours any more.
pub(super) fn check(db: &Connection, path: &Path) -> Outcome<()> {
    let place = path.display();
    let version = version(db)?;
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION && tables > 0 {
        return Err(Failure::Store(StoreError::Unreadable(format!(
            "{place} is another program's database"
        ))));
    }
    if version != VERSION && tables > 0 {
        return Err(Failure::Store(StoreError::Unreadable(format!(
            "{place} has format {version} of another version of Rye; this one uses {VERSION}"
        ))));
    }
    Ok(())
}

/// The format of the file; 0 of an empty one.
pub(super) fn version(db: &Connection) -> rusqlite::Result<u32> {
    let mut version = db.prepare_cached("PRAGMA user_version")?;
    version.query_row([], |row| row.get(0))
}

fn use_wal(db: &Connection) -> Outcome<()> {
    // A connection that closes the file at this moment may refuse the switch.
    let start = Instant::now();
    let mode: String = loop {
        match db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && start.elapsed() < PATIENCE =>
            {
                thread::sleep(SWITCH_AGAIN);
            }
            mode => break mode?,
        }
    };
    if mode != "wal" {
        let message = format!("no write-ahead log can be kept beside it (SQLite gives `{mode}`)");
        return Err(StoreError::Unavailable(message).into());
    }
    // Whatever was acknowledged is there after a power cut.
    db.pragma_update(None, "synchronous", "full")?;
    // What a savepoint would need to go back stays in memory; with many in a group it would
    // else become a file.
    db.pragma_update(None, "temp_store", "memory")?;
    // In KiB: room for all pages of a large group, which else are read again and again.
    db.pragma_update(None, "cache_size", -16_384)?;
    Ok(())
}

fn create_tables(db: &mut Connection, path: &Path) -> Outcome<()> {
    if version(db)? == VERSION {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been quicker.
    check(&transaction, path)?;
    if version(&transaction)? != VERSION {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}
