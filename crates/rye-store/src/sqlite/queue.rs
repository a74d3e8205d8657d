//! The queue of writers: processes and threads that write to one database wait for their turn
//! in the kernel.
//!
//! SQLite refuses a second writer and leaves the waiting to its caller, who can only poll; with
//! hundreds of processes some of them never get the lock. So a writer takes its turn before it
//! talks to SQLite: it locks `NAME-queue`, then `NAME-lock`, and unlocks `NAME-queue` again.
//! Only one writer at a time waits for `NAME-lock`, so a process that writes all the time cannot
//! overtake it. The kernel releases both when their holder ends, however it does.
//!
//! SQLite's own locks still decide who may write. Without the two files the order is lost, and
//! nothing else.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rye_engine::store::StoreError;

use super::error::Outcome;
use super::reading::Stamp;

/// How long a writer waits while no other writer makes progress.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// How often a waiting writer checks for progress, at most.
const CHECK: Duration = Duration::from_secs(5);

/// The queue of one open database.
pub(super) struct Queue {
    database: PathBuf,
    /// Kept open for the case that nobody else writes.
    files: Files,
    patience: Duration,
}

#[derive(Clone)]
struct Files {
    turnstile: Arc<File>,
    lock: Arc<File>,
}

/// The right to write, until it is dropped.
pub(super) struct Turn(Arc<File>);

impl Drop for Turn {
    fn drop(&mut self) {
        // Explicitly: a child process that was just forked may still have the file open.
        let _ = self.0.unlock();
    }
}

impl Files {
    fn open(database: &Path) -> io::Result<Self> {
        Ok(Self {
            turnstile: open(&beside(database, "-queue"))?,
            lock: open(&lock_path(database))?,
        })
    }

    /// Waits as long as it takes.
    fn lock(self) -> io::Result<Turn> {
        self.turnstile.lock()?;
        let locked = self.lock.lock();
        let _ = self.turnstile.unlock();
        locked.map(|()| Turn(self.lock))
    }
}

impl Queue {
    /// Opens the queue of a database, whose folder is there.
    pub(super) fn open(database: &Path) -> Outcome<Self> {
        Self::with_patience(database, PATIENCE)
    }

    /// Whether anybody has opened it before.
    pub(super) fn is_there(database: &Path) -> bool {
        lock_path(database).exists()
    }

    fn with_patience(database: &Path, patience: Duration) -> Outcome<Self> {
        let files = Files::open(database).map_err(|error| unavailable(database, &error))?;
        Ok(Self {
            database: database.to_owned(),
            files,
            patience,
        })
    }

    /// The turn, if nobody else has it or waits for it. One turn at a time per queue: a second
    /// one would share the lock of the first.
    pub(super) fn try_turn(&self) -> Option<Turn> {
        let Files { turnstile, lock } = &self.files;
        turnstile.try_lock().ok()?;
        let locked = lock.try_lock();
        let _ = turnstile.unlock();
        locked.ok().map(|()| Turn(Arc::clone(lock)))
    }

    /// Waits for the turn. Fails once nobody has made progress for a minute, and names who
    /// holds the database then.
    pub(super) fn turn(&self) -> Outcome<Turn> {
        if let Some(turn) = self.try_turn() {
            return Ok(turn);
        }
        // The kernel has no limit for such a wait, so another thread does it. A turn that is
        // granted after this one gave up is dropped with the channel.
        let failed = |error: io::Error| unavailable(&self.database, &error);
        let files = Files::open(&self.database).map_err(failed)?;
        let (grant, granted) = mpsc::channel();
        thread::Builder::new()
            .name("rye-store-queue".to_owned())
            .spawn(move || drop(grant.send(files.lock())))
            .map_err(failed)?;
        let mut seen = self.progress();
        let mut since = Instant::now();
        loop {
            match granted.recv_timeout(self.patience.min(CHECK)) {
                Ok(turn) => return Ok(turn.map_err(failed)?),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed(io::ErrorKind::BrokenPipe.into()).into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.progress();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= self.patience {
                return Err(locked(&self.database).into());
            }
        }
    }

    /// What changes whenever somebody writes or takes a turn.
    fn progress(&self) -> (Stamp, Option<u32>) {
        let holder = holder_of(&lock_path(&self.database), &locks());
        (Stamp::of(&self.database), holder)
    }
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn lock_path(database: &Path) -> PathBuf {
    beside(database, "-lock")
}

fn open(path: &Path) -> io::Result<Arc<File>> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    options.mode(0o600).open(path).map(Arc::new)
}

fn unavailable(database: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", lock_path(database).display()))
}

/// The error of a writer that has waited long enough.
pub(super) fn locked(database: &Path) -> StoreError {
    let locks = locks();
    let own = std::process::id();
    let files = [
        lock_path(database),
        beside(database, "-shm"),
        database.to_owned(),
    ];
    let mut holders = files.iter().filter_map(|file| holder_of(file, &locks));
    let first = holders.clone().next();
    let holder = match holders.find(|pid| *pid != own).or(first) {
        Some(pid) if pid == own => "this process".to_owned(),
        Some(pid) => match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process".to_owned(),
    };
    StoreError::Unavailable(format!(
        "{} is locked by {holder}, which made no progress for {} s",
        database.display(),
        PATIENCE.as_secs()
    ))
}

/// The locks that processes hold.
fn locks() -> String {
    fs::read_to_string("/proc/locks").unwrap_or_default()
}

/// The process that holds a write lock on a file.
fn holder_of(file: &Path, locks: &str) -> Option<u32> {
    let inode = fs::metadata(file).ok()?.ino().to_string();
    locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`; those that wait begin `1: -> `.
        let mut words = line.split_whitespace().skip(1);
        let (_kind, _advisory) = (words.next().filter(|it| *it != "->")?, words.next()?);
        let (access, pid, place) = (words.next()?, words.next()?, words.next()?);
        let is_it = access == "WRITE" && place.rsplit(':').next() == Some(inode.as_str());
        pid.parse().ok().filter(|_| is_it)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::error::Failure;

    #[test]
    fn waiting_writer_gets_the_next_turn() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let holder = Queue::open(&database).unwrap();
        let turn = holder.try_turn().unwrap();
        let waiting = Queue::open(&database).unwrap();
        assert!(waiting.try_turn().is_none());
        let waiter = thread::spawn(move || waiting.turn().map(drop).is_ok());
        drop(turn);
        assert!(waiter.join().unwrap());
        assert!(holder.try_turn().is_some());
    }

    #[test]
    fn writer_that_waits_for_a_stalled_holder_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let holder = Queue::open(&database).unwrap();
        let turn = holder.try_turn().unwrap();
        let waiting = Queue::with_patience(&database, Duration::from_millis(50)).unwrap();
        let Err(Failure::Store(StoreError::Unavailable(message))) = waiting.turn() else {
            unreachable!("the turn is taken");
        };
        assert!(message.contains("locked by this process"), "{message}");
        // The wait that was given up does not keep the turn.
        drop(turn);
        assert!(Queue::open(&database).unwrap().turn().is_ok());
    }

    #[test]
    fn holders_are_read_from_the_kernels_list() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "").unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let locks = format!(
            "1: FLOCK  ADVISORY  WRITE 11 fd:00:1 0 EOF\n\
             2: POSIX  ADVISORY  READ  12 fd:00:{inode} 0 EOF\n\
             3: POSIX  ADVISORY  WRITE 13 fd:00:{inode} 120 120\n\
             3: -> POSIX  ADVISORY  WRITE 14 fd:00:{inode} 120 120\n"
        );
        assert_eq!(holder_of(&file, &locks), Some(13));
        assert_eq!(holder_of(&file, "nonsense\n\n"), None);
    }
}
