//! A fair lock for the writers of a database, across processes and threads.
//!
//! SQLite refuses a second writer, which can only poll; with hundreds of processes some never
//! get the lock. So a writer acquires a permit before it uses SQLite: it locks `NAME-queue`, then
//! `NAME-lock`, and unlocks `NAME-queue` again. Only one writer at a time waits for `NAME-lock`,
//! so a process that writes all the time cannot overtake it. The kernel releases both locks when
//! their holder ends.
//!
//! SQLite's own locks still ensure mutual exclusion. Without the two files only fairness is lost.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rye_engine::store::StoreError;

use super::error::DbResult;
use super::read_only::ChangeStamp;

/// Maximum time that a writer waits without progress of other writers.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum interval at which a waiting writer checks for progress.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The queue of one open database.
pub(super) struct WriterQueue {
    database: PathBuf,
    /// Kept open for uncontended writes.
    files: Files,
    timeout: Duration,
}

#[derive(Clone)]
struct Files {
    turnstile: Arc<File>,
    lock: Arc<File>,
}

/// The right to write, until it is dropped.
pub(super) struct WritePermit(Arc<File>);

impl Drop for WritePermit {
    fn drop(&mut self) {
        // Explicitly, because a child process that was just forked may have the file open.
        let _ = self.0.unlock();
    }
}

impl Files {
    fn open(database: &Path) -> io::Result<Self> {
        Ok(Self {
            turnstile: open(&sibling(database, "-queue"))?,
            lock: open(&lock_path(database))?,
        })
    }

    /// Waits without a time limit.
    fn lock(self) -> io::Result<WritePermit> {
        self.turnstile.lock()?;
        let locked = self.lock.lock();
        let _ = self.turnstile.unlock();
        locked.map(|()| WritePermit(self.lock))
    }
}

impl WriterQueue {
    /// Opens the queue of a database. Its directory must exist.
    pub(super) fn open(database: &Path) -> DbResult<Self> {
        Self::with_timeout(database, STALL_TIMEOUT)
    }

    /// Whether the queue of a database was ever opened.
    pub(super) fn exists(database: &Path) -> bool {
        lock_path(database).exists()
    }

    fn with_timeout(database: &Path, timeout: Duration) -> DbResult<Self> {
        let files = Files::open(database).map_err(|error| unavailable(database, &error))?;
        Ok(Self {
            database: database.to_owned(),
            files,
            timeout,
        })
    }

    /// Acquires the permit if no other writer has it or waits for it. At most one permit per
    /// queue: a second one would share the lock of the first.
    pub(super) fn try_acquire(&self) -> Option<WritePermit> {
        let Files { turnstile, lock } = &self.files;
        turnstile.try_lock().ok()?;
        let locked = lock.try_lock();
        let _ = turnstile.unlock();
        locked.ok().map(|()| WritePermit(Arc::clone(lock)))
    }

    /// Waits for the permit. Fails if no writer has made progress for [`STALL_TIMEOUT`], and
    /// names the process that holds the lock.
    pub(super) fn acquire(&self) -> DbResult<WritePermit> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        // The kernel offers no timeout, so another thread waits. A permit that is granted after
        // the timeout is dropped with the channel.
        let failed = |error: io::Error| unavailable(&self.database, &error);
        let files = Files::open(&self.database).map_err(failed)?;
        let (grant, granted) = mpsc::channel();
        thread::Builder::new()
            .name("rye-store-queue".to_owned())
            .spawn(move || drop(grant.send(files.lock())))
            .map_err(failed)?;
        let mut last = self.progress();
        let mut since = Instant::now();
        loop {
            match granted.recv_timeout(self.timeout.min(CHECK_INTERVAL)) {
                Ok(permit) => return Ok(permit.map_err(failed)?),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed(io::ErrorKind::BrokenPipe.into()).into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.progress();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= self.timeout {
                return Err(stalled_error(&self.database).into());
            }
        }
    }

    /// A value that changes with every write and every permit.
    fn progress(&self) -> (ChangeStamp, Option<u32>) {
        let holder = holder_of(&lock_path(&self.database), &locks());
        (ChangeStamp::read(&self.database), holder)
    }
}

fn sibling(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn lock_path(database: &Path) -> PathBuf {
    sibling(database, "-lock")
}

fn open(path: &Path) -> io::Result<Arc<File>> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    options.mode(0o600).open(path).map(Arc::new)
}

fn unavailable(database: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", lock_path(database).display()))
}

/// The error of a writer that has waited too long.
pub(super) fn stalled_error(database: &Path) -> StoreError {
    let locks = locks();
    let own = std::process::id();
    let files = [
        lock_path(database),
        sibling(database, "-shm"),
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
        STALL_TIMEOUT.as_secs()
    ))
}

/// The locks of all processes.
fn locks() -> String {
    fs::read_to_string("/proc/locks").unwrap_or_default()
}

/// The process that holds a write lock on a file.
fn holder_of(file: &Path, locks: &str) -> Option<u32> {
    let inode = fs::metadata(file).ok()?.ino().to_string();
    locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`; waiting ones start with `1: -> `.
        let mut words = line.split_whitespace().skip(1);
        let (_kind, _advisory) = (words.next().filter(|word| *word != "->")?, words.next()?);
        let (access, pid, inode_id) = (words.next()?, words.next()?, words.next()?);
        let matches = access == "WRITE" && inode_id.rsplit(':').next() == Some(inode.as_str());
        pid.parse().ok().filter(|_| matches)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::error::DbError;

    #[test]
    fn waiting_writer_gets_the_next_permit() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("a.db");
        let holder = WriterQueue::open(&database).unwrap();
        let permit = holder.try_acquire().unwrap();
        let waiting = WriterQueue::open(&database).unwrap();
        assert!(waiting.try_acquire().is_none());
        let waiter = thread::spawn(move || waiting.acquire().map(drop).is_ok());
        drop(permit);
        assert!(waiter.join().unwrap());
        assert!(holder.try_acquire().is_some());
    }

    #[test]
    fn error_names_the_process_that_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("a.db");
        let holder = WriterQueue::open(&database).unwrap();
        let permit = holder.try_acquire().unwrap();
        let waiting = WriterQueue::with_timeout(&database, Duration::from_millis(50)).unwrap();
        let Err(DbError::Store(StoreError::Unavailable(message))) = waiting.acquire() else {
            unreachable!("another queue holds the permit");
        };
        assert!(message.contains("locked by this process"), "{message}");
        // The abandoned wait does not keep the permit.
        drop(permit);
        assert!(WriterQueue::open(&database).unwrap().acquire().is_ok());
    }

    #[test]
    fn lock_holder_is_parsed_from_proc_locks() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
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
