//! A file that is damaged: what is wrong with it, and how it is kept from getting worse.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rye_engine::store::StoreError;

use super::error::{Failure, Outcome};
use super::{file, reading, seen, wal};

/// How many faults of a file are told.
const FAULTS: usize = 3;

/// How long a file is looked at before something else is done with it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all who work with a file know of it.
#[derive(Debug, Default)]
pub(super) struct Health {
    damage: OnceLock<StoreError>,
    /// Whether something was written from here.
    written: AtomicBool,
}

impl Health {
    /// Once the file is found damaged nothing more is written to it.
    pub(super) fn damage(&self) -> Option<&StoreError> {
        self.damage.get()
    }

    pub(super) fn wrote(&self) {
        self.written.store(true, Ordering::Relaxed);
    }

    /// In the store's words, and known from now on to all others if the file is at fault.
    pub(super) fn explain(&self, failure: Failure, path: &Path) -> StoreError {
        if !failure.is_damage() {
            return failure.explain(path);
        }
        let written = self.written.load(Ordering::Relaxed);
        let error = failure.explain_damage(path, written);
        self.damage.get_or_init(|| error).clone()
    }
}

/// The log that SQLite keeps beside a file.
pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Whether something is in that log.
pub(super) fn has_log(path: &Path) -> bool {
    fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0)
}

/// Whether a file that should have something in it has nothing: then SQLite would throw away
/// the log beside it, in which may be all that is left.
pub(super) fn is_missing(path: &Path) -> Outcome<()> {
    // In this order: whoever makes one makes its log last.
    let has_log = has_log(path);
    let length = fs::metadata(path).map(|it| it.len());
    let is_there = length.is_ok();
    if length.is_ok_and(|length| length > 0) || !(has_log || is_there && seen::had_something(path))
    {
        return Ok(());
    }
    let place = path.display();
    let log = log_of(path);
    let log = log.display();
    let what = if is_there { "is empty" } else { "is not there" };
    let message = if has_log {
        format!(
            "{place} {what}, but {log} is there, with what was written last. Nothing was changed. \
             Put the file back where it was; or, to begin anew, move {log} away"
        )
    } else {
        format!(
            "{place} {what}, though it was not when it was last closed. Nothing was changed. Put \
             the file back from a copy; or, to begin anew, remove it"
        )
    };
    Err(StoreError::Unreadable(message).into())
}

/// What a check says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Soundness {
    /// Nothing is wrong.
    Sound,
    /// Nothing was found as far as it was looked at: it is large.
    SoundSoFar,
    /// This is.
    Damaged(Vec<String>),
}

/// Has SQLite check a file, for as long as one would wait for that.
pub(super) fn check(db: &Connection, patience: Duration) -> rusqlite::Result<Soundness> {
    let interrupt = db.get_interrupt_handle();
    let (done, over) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if over.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            interrupt.interrupt();
        }
    });
    let faults = faults(db);
    drop(done);
    let _ = watch.join();
    match faults {
        Ok(lines) if lines == ["ok"] => Ok(Soundness::Sound),
        Ok(lines) => Ok(Soundness::Damaged(lines)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Ok(Soundness::SoundSoFar),
            Some(ErrorCode::DatabaseCorrupt) => Ok(Soundness::Damaged(vec![error.to_string()])),
            _ => Err(error),
        },
    }
}

fn faults(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut check = db.prepare(&format!("PRAGMA quick_check({FAULTS})"))?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?;
    let lines: Vec<_> = lines.collect::<Result<_, _>>()?;
    // One line may tell of several.
    let lines = lines.iter().flat_map(|line| line.lines());
    let lines = lines.filter(|line| !line.starts_with("*** in database"));
    Ok(lines.take(FAULTS).map(str::to_owned).collect())
}

/// What is wrong with a file, in a sentence. Only read.
pub(super) fn findings(path: &Path) -> String {
    let found = reading::connect(path).and_then(|db| Ok(check(&db, PATIENCE)?));
    match found {
        Ok(Soundness::Damaged(faults)) => format!("A check found: {}.", faults.join("; ")),
        Ok(_) => "A check found nothing, so try again first.".to_owned(),
        Err(error) => format!("It cannot even be checked: {}.", error.explain(path)),
    }
}

/// Looks at a file before anything is written to it, where that was left by a crash or changed
/// by somebody else. After a crash the log beside it has what is not in the file yet, and
/// SQLite would put it there, also if it is the log of another file. Whoever else has the file
/// open has looked already.
pub(super) fn look(path: &Path) -> Outcome<()> {
    let has_log = has_log(path);
    if !has_log && !seen::is_changed(path) {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    // Alone or not at all, and with nothing written: neither into the file nor beside it.
    db.busy_timeout(Duration::ZERO)?;
    file::keep_log(&db, has_log)?;
    db.pragma_update(None, "locking_mode", "exclusive")?;
    let found = check(&db, PATIENCE);
    let last = last_claim(&db);
    // As long as nobody else can write to it.
    let in_log = found.is_ok().then(|| wal::damage(&log_of(path)));
    let in_log = in_log.and_then(|found| found.ok().flatten());
    drop(db);
    if let Some(damage) = in_log.filter(|_| has_log) {
        return Err(StoreError::Unreadable(format!(
            "{} is damaged: {damage}. Nothing was changed. Keep a copy of it with {}, then move \
             that away: what is in it is lost then",
            log_of(path).display(),
            path.display()
        ))
        .into());
    }
    let faults = match found {
        Ok(Soundness::Damaged(faults)) => faults.join("; "),
        Ok(_) if has_log && last < reading::without_log(path).map_or(0, |db| last_claim(&db)) => {
            "what is in the file is newer than what is in the log".to_owned()
        }
        // Where it cannot be looked at, whoever opens it is told why.
        _ => return Ok(()),
    };
    let place = path.display();
    let mut together = String::new();
    let mut hint =
        format!("Keep a copy with the files beside it, then try `sqlite3 {place} .recover`");
    if has_log {
        let log = log_of(path);
        let log = log.display();
        together = format!(", together with {log}");
        let alone = reading::without_log(path).and_then(|db| check(&db, PATIENCE));
        if alone == Ok(Soundness::Sound) {
            hint = format!(
                "Without {log} it is sound: is that the log of another file? Keep a copy of \
                 both, then move the log away"
            );
        }
    }
    Err(StoreError::Unreadable(format!(
        "{place} is damaged{together}. A check found: {faults}. Nothing was changed. {hint}"
    ))
    .into())
}

/// The number of the last claim, which only grows: with its log, a file has at least the claims
/// that it has without.
fn last_claim(db: &Connection) -> i64 {
    let last = "SELECT seq FROM sqlite_sequence WHERE name = 'engine_leases'";
    db.query_row(last, [], |row| row.get(0)).unwrap_or_default()
}
