//! Who has a session: claims, and whether those who made them are alive.
//!
//! A process that can be seen from here is looked for. One in another container has a number
//! that means another process here, or none; so whoever claims something locks a file beside
//! the database, which the kernel unlocks when they end, however they do.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use lillux::process::Handle;
use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Claim, Lease, StoreError};
use rye_protocol::SessionId;
use uuid::Uuid;

use super::error::Outcome;
use super::log::Log;

/// A store that is open, in a process, on a host.
#[derive(Debug)]
pub(super) struct Holder {
    host: String,
    process: Process,
    /// One process may open a file twice.
    instance: i64,
    /// The database.
    path: PathBuf,
    /// Locked from the first claim on.
    lock: OnceLock<File>,
}

/// A process, as it is written down: `PID:START:BOOT`, the room in which it has that number,
/// and the name of its lock. Older ones have the first alone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    handle: String,
    room: Option<String>,
    lock: Option<String>,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.handle)?;
        let rest = [&self.room, &self.lock];
        rest.into_iter()
            .flatten()
            .try_for_each(|it| write!(f, " {it}"))
    }
}

impl From<&str> for Process {
    fn from(text: &str) -> Self {
        let mut words = text.split(' ').map(str::to_owned);
        Self {
            handle: words.next().unwrap_or_default(),
            room: words.next(),
            lock: words.next(),
        }
    }
}

impl Process {
    /// Since which start of which machine, if it is known.
    fn boot(&self) -> Option<&str> {
        self.handle.split(':').nth(2)
    }

    fn is_running(&self) -> bool {
        let handle = self.handle.parse::<Handle>();
        handle.is_ok_and(|process| process.is_alive().unwrap_or(true))
    }
}

impl Holder {
    /// A new one in this process, for a database.
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let unknown = |error: &dyn fmt::Display| {
            StoreError::Unavailable(format!("this process cannot be told from others: {error}"))
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.map_err(|error| unknown(&error))?.trim().to_owned();
        let pid = i32::try_from(std::process::id()).map_err(|error| unknown(&error))?;
        let handle = Handle::from_pid(pid).map_err(|error| unknown(&error))?;
        let room = fs::read_link("/proc/self/ns/pid");
        let room = room.map_err(|error| unknown(&error))?;
        Ok(Self {
            host,
            process: Process {
                handle: handle.to_string(),
                room: Some(room.to_string_lossy().into_owned()),
                lock: Some(Uuid::now_v7().simple().to_string()),
            },
            instance: NEXT.fetch_add(1, Ordering::Relaxed),
            path: path.to_owned(),
            lock: OnceLock::new(),
        })
    }

    /// A name for what this one posts.
    pub(super) fn source(&self) -> String {
        format!("{} {} {}", self.host, self.process.handle, self.instance)
    }

    /// The file that one locks.
    fn lock_of(&self, process: &Process) -> Option<PathBuf> {
        let name = process.lock.as_ref()?;
        let mut file = self.path.as_os_str().to_owned();
        file.push("-held-");
        file.push(name);
        Some(file.into())
    }

    /// Locks its file, so that others know that it is there.
    fn lock(&self) -> io::Result<()> {
        let (None, Some(file)) = (self.lock.get(), self.lock_of(&self.process)) else {
            return Ok(());
        };
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(file)?;
        file.lock()?;
        let _ = self.lock.set(file);
        Ok(())
    }

    /// Whether another can still write. One of which nothing can be known counts as alive.
    fn finds_alive(&self, host: &str, other: &Process) -> bool {
        let same_boot = other.boot() == self.process.boot();
        match self.lock_of(other) {
            Some(_) if same_boot && other.room == self.process.room => other.is_running(),
            Some(file) => match File::open(&file) {
                Err(error) => error.kind() != io::ErrorKind::NotFound,
                Ok(lock) => match lock.try_lock_shared() {
                    Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
                    Ok(()) => false,
                },
            },
            None => host != self.host || other.is_running(),
        }
    }

    /// Whether a holder is no more. What it leaves behind is tidied up.
    fn is_over(&self, session: &SessionId, host: &str, process: &Process) -> Outcome<()> {
        if self.finds_alive(host, process) {
            let pid = process.handle.split(':').next().unwrap_or_default();
            let error = StoreError::InUse {
                session: session.clone(),
                holder: format!("process {pid} on {host}"),
            };
            return Err(error.into());
        }
        if let Some(lock) = self.lock_of(process) {
            // If it cannot be removed, it lies there, unlocked.
            let _ = fs::remove_file(lock);
        }
        Ok(())
    }

    pub(super) fn claim(
        &self,
        db: &Connection,
        session: &SessionId,
        claim: Claim,
    ) -> Outcome<Lease> {
        if claim == Claim::IfFree
            && let Some((host, process)) = Self::of(db, session)?
        {
            self.is_over(session, &host, &process)?;
        }
        self.lock().map_err(|error| {
            StoreError::Unavailable(format!("beside {}: {error}", self.path.display()))
        })?;
        // A row that is replaced gets a new number, which is the epoch.
        let mut take = db.prepare_cached(
            "REPLACE INTO engine_leases (session, host, process, instance)
             VALUES (?1, ?2, ?3, ?4) RETURNING epoch",
        )?;
        let process = self.process.to_string();
        let mine = params![session.as_str(), self.host, process, self.instance];
        let epoch: i64 = take.query_row(mine, |row| row.get(0))?;
        Ok(Lease {
            session: session.clone(),
            epoch: epoch.cast_unsigned(),
        })
    }

    /// Who has a session: its host and its process.
    fn of(db: &Connection, session: &SessionId) -> rusqlite::Result<Option<(String, Process)>> {
        let mut find =
            db.prepare_cached("SELECT host, process FROM engine_leases WHERE session = ?1")?;
        let holder = find.query_row([session.as_str()], |row| {
            let process: String = row.get(1)?;
            Ok((row.get(0)?, Process::from(process.as_str())))
        });
        holder.optional()
    }

    /// Gives back all that it holds.
    pub(super) fn release_all(&self, db: &Connection) -> rusqlite::Result<usize> {
        db.execute(
            "DELETE FROM engine_leases WHERE host = ?1 AND process = ?2 AND instance = ?3",
            params![self.host, self.process.to_string(), self.instance],
        )
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let (Some(_), Some(file)) = (self.lock.get(), self.lock_of(&self.process)) {
            // If it cannot be, it lies there, unlocked.
            let _ = fs::remove_file(file);
        }
    }
}

/// Gives a session back, if it was not lost before.
pub(super) fn release(db: &Connection, lease: &Lease) -> Outcome<()> {
    let mut release =
        db.prepare_cached("DELETE FROM engine_leases WHERE session = ?1 AND epoch = ?2")?;
    release.execute(params![lease.session.as_str(), lease.epoch.cast_signed()])?;
    Ok(())
}

/// Whether a lease still holds; and the log of its session, if that is there.
pub(super) fn holds(db: &Connection, lease: &Lease) -> Outcome<Option<Log>> {
    let mut find = db.prepare_cached(
        "SELECT engine_leases.epoch, engine_sessions.number
         FROM engine_leases LEFT JOIN engine_sessions
         ON engine_sessions.id = engine_leases.session
         WHERE engine_leases.session = ?1",
    )?;
    let found = find.query_row([lease.session.as_str()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
    });
    match found.optional()? {
        Some((epoch, session)) if epoch == lease.epoch.cast_signed() => {
            session.map(|session| Log::of(db, session)).transpose()
        }
        _ => Err(StoreError::Fenced(lease.session.clone()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has claimed something of a database.
    fn claimed(database: &Path) -> Holder {
        let holder = Holder::new(database).unwrap();
        holder.lock().unwrap();
        holder
    }

    #[test]
    fn who_runs_here_is_seen_whatever_the_host_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let me = claimed(&folder.path().join("a.db"));
        assert!(me.finds_alive("another-name", &me.process));
        let gone = Process {
            handle: format!("1:2:{}", me.process.boot().unwrap()),
            ..me.process.clone()
        };
        assert!(!me.finds_alive("another-name", &gone));
    }

    #[test]
    fn who_cannot_be_seen_is_alive_as_long_as_its_file_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let (me, it) = (claimed(&database), claimed(&database));
        let in_a_container = Process {
            handle: format!("1:2:{}", me.process.boot().unwrap()),
            room: Some("pid:[1]".to_owned()),
            ..it.process.clone()
        };
        assert!(me.finds_alive(&me.host, &in_a_container));
        // Killed: unlocked, and its file is still there.
        it.lock.get().unwrap().unlock().unwrap();
        assert!(!me.finds_alive(&me.host, &in_a_container));
        drop(it);
        assert!(!me.finds_alive(&me.host, &in_a_container));
        let names = fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1, "only mine is left");
    }

    #[test]
    fn of_one_that_an_older_version_wrote_the_host_must_be_known() {
        let folder = tempfile::tempdir().unwrap();
        let me = claimed(&folder.path().join("a.db"));
        let old = Process::from("1:2:00000000");
        assert!(me.finds_alive("elsewhere.example", &old));
        assert!(!me.finds_alive(&me.host, &old));
        assert_eq!(Process::from(me.process.to_string().as_str()), me.process);
    }
}
