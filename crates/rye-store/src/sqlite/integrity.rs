//! Detects damaged database files and prevents further damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rye_engine::store::StoreError;

use super::error::{DbError, DbResult};
use super::{file, file_stamp, read_only, wal};

/// Maximum number of reported faults.
const MAX_FAULTS: usize = 3;

/// Time limit of an integrity check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// What the readers and the writer of a store know about the file.
#[derive(Debug, Default)]
pub(super) struct FileHealth {
    damage: OnceLock<StoreError>,
    /// Whether this store has written to the file.
    written: AtomicBool,
}

impl FileHealth {
    /// The damage that was found, if any. The store no longer writes to a damaged file.
    pub(super) fn damage(&self) -> Option<&StoreError> {
        self.damage.get()
    }

    pub(super) fn set_written(&self) {
        self.written.store(true, Ordering::Relaxed);
    }

    /// The error for users of the store. Remembers damage.
    pub(super) fn explain(&self, failure: DbError, path: &Path) -> StoreError {
        if !failure.is_damage() {
            return failure.explain(path);
        }
        let written = self.written.load(Ordering::Relaxed);
        let error = failure.explain_damage(path, written);
        self.damage.get_or_init(|| error).clone()
    }
}

/// Path of SQLite's write-ahead log.
pub(super) fn wal_path(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}

/// Whether there is a write-ahead log with content.
pub(super) fn has_wal(path: &Path) -> bool {
    fs::metadata(wal_path(path)).is_ok_and(|wal| wal.len() > 0)
}

/// Fails if the file is missing or empty although it had content. SQLite would then delete the
/// write-ahead log, which may be all that is left.
pub(super) fn check_not_missing(path: &Path) -> DbResult<()> {
    // In this order: a process that creates the file creates the log last.
    let has_wal = has_wal(path);
    let length = fs::metadata(path).map(|metadata| metadata.len());
    let exists = length.is_ok();
    let has_content = length.is_ok_and(|length| length > 0);
    if has_content || !(has_wal || exists && file_stamp::had_content(path)) {
        return Ok(());
    }
    let file = path.display();
    let wal = wal_path(path);
    let wal = wal.display();
    let state = if exists { "is empty" } else { "is missing" };
    let message = if has_wal {
        format!(
            "{file} {state}, but its write-ahead log {wal} exists. Nothing was changed. Restore \
             the file; or, to start with an empty database, move {wal} away"
        )
    } else {
        format!(
            "{file} {state}, but had content when it was last closed. Nothing was changed. \
             Restore the file from a backup; or, to start with an empty database, remove it"
        )
    };
    Err(StoreError::Damaged(message).into())
}

/// The result of an integrity check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// No faults.
    Intact,
    /// No faults until the time limit.
    Unfinished,
    /// These faults.
    Damaged(Vec<String>),
}

/// Runs SQLite's `quick_check` until a timeout.
pub(super) fn check_integrity(db: &Connection, timeout: Duration) -> rusqlite::Result<Integrity> {
    let interrupt = db.get_interrupt_handle();
    let (finished, wait) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if wait.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            interrupt.interrupt();
        }
    });
    let faults = quick_check(db);
    drop(finished);
    let _ = watchdog.join();
    match faults {
        Ok(lines) if lines == ["ok"] => Ok(Integrity::Intact),
        Ok(lines) => Ok(Integrity::Damaged(lines)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Ok(Integrity::Unfinished),
            Some(ErrorCode::DatabaseCorrupt) => Ok(Integrity::Damaged(vec![error.to_string()])),
            _ => Err(error),
        },
    }
}

fn quick_check(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut check = db.prepare(&format!("PRAGMA quick_check({MAX_FAULTS})"))?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?;
    let lines: Vec<_> = lines.collect::<Result<_, _>>()?;
    // A row may contain several lines.
    let lines = lines.iter().flat_map(|line| line.lines());
    let lines = lines.filter(|line| !line.starts_with("*** in database"));
    Ok(lines.take(MAX_FAULTS).map(str::to_owned).collect())
}

/// Describes the damage of a file in a sentence. Does not write.
pub(super) fn describe_damage(path: &Path) -> String {
    let result = read_only::open(path).and_then(|db| Ok(check_integrity(&db, CHECK_TIMEOUT)?));
    match result {
        Ok(Integrity::Damaged(faults)) => format!("A check found: {}.", faults.join("; ")),
        Ok(_) => "A check found no fault, so try again first.".to_owned(),
        Err(error) => format!("The file cannot be checked: {}.", error.explain(path)),
    }
}

/// Checks a file before the first write if a crash left a write-ahead log or another program
/// has written to it. SQLite would otherwise copy the log into the file, even if it is the log
/// of another file. If another process has the file open, that process has checked it.
pub(super) fn check_before_writing(path: &Path) -> DbResult<()> {
    let has_wal = has_wal(path);
    if !has_wal && !file_stamp::is_changed(path) {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    // Exclusive or not at all, and without writing to the file or its log.
    db.busy_timeout(Duration::ZERO)?;
    file::keep_wal(&db, has_wal)?;
    db.pragma_update(None, "locking_mode", "exclusive")?;
    let result = check_integrity(&db, CHECK_TIMEOUT);
    let epoch = last_epoch(&db);
    // Before the lock is released.
    let wal_damage = result.is_ok().then(|| wal::find_damage(&wal_path(path)));
    let wal_damage = wal_damage.and_then(|damage| damage.ok().flatten());
    drop(db);
    if let Some(damage) = wal_damage.filter(|_| has_wal) {
        return Err(StoreError::Damaged(format!(
            "{wal} is damaged: {damage}. Nothing was changed. Copy it together with {file}, then \
             move it away; what it contains is then lost",
            wal = wal_path(path).display(),
            file = path.display()
        ))
        .into());
    }
    let faults = match result {
        Ok(Integrity::Damaged(faults)) => faults.join("; "),
        Ok(_) if has_wal && epoch < epoch_without_wal(path) => {
            "the file is newer than its write-ahead log".to_owned()
        }
        // If the check fails, opening the file fails too and reports the cause.
        _ => return Ok(()),
    };
    let file = path.display();
    let mut with_wal = String::new();
    let mut hint =
        format!("Copy the file and the ones next to it, then try `sqlite3 {file} .recover`");
    if has_wal {
        let wal = wal_path(path);
        let wal = wal.display();
        with_wal = format!(", together with {wal}");
        let without_wal =
            read_only::open_immutable(path).and_then(|db| check_integrity(&db, CHECK_TIMEOUT));
        if without_wal == Ok(Integrity::Intact) {
            hint = format!(
                "Without {wal} the file is intact, so the log may belong to another file. Copy both, \
                 then move the log away"
            );
        }
    }
    Err(StoreError::Damaged(format!(
        "{file} is damaged{with_wal}. A check found: {faults}. Nothing was changed. {hint}"
    ))
    .into())
}

fn epoch_without_wal(path: &Path) -> i64 {
    read_only::open_immutable(path).map_or(0, |db| last_epoch(&db))
}

/// The last epoch of a lease. It only grows, so with its log a file has at least the epoch that
/// it has without.
fn last_epoch(db: &Connection) -> i64 {
    let query = "SELECT seq FROM sqlite_sequence WHERE name = 'engine_leases'";
    db.query_row(query, [], |row| row.get(0))
        .unwrap_or_default()
}
