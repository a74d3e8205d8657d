//! Leases: which process holds a session, whether that process is still alive, how another one
//! takes the session over, and the check of the lease's epoch before each write (fencing).
//!
//! For a process in the same PID namespace, the process table tells. The PID of a process in
//! another container means nothing here, so every holder also locks a file next to the database;
//! the kernel unlocks it when the holder ends for whatever reason.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use lillux::process::Handle;
use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Claim, Holder, Lease, StoreError};
use rye_protocol::{ProcessRef, SessionId};
use uuid::Uuid;

use super::error::DbResult;
use super::log::Log;

/// An open store, as the holder of leases.
#[derive(Debug)]
pub(super) struct LeaseHolder {
    host: String,
    process: Process,
    /// Distinguishes several stores of one process.
    instance: i64,
    database: PathBuf,
    /// Locked from the first claim on.
    lock: OnceLock<File>,
}

/// A process as stored in the database: `PID:START:BOOT NAMESPACE LOCK`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    handle: String,
    pid_namespace: String,
    /// Suffix of the lock file's name.
    lock: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.handle, self.pid_namespace, self.lock)
    }
}

impl Process {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').map(str::to_owned);
        Some(Self {
            handle: words.next()?,
            pid_namespace: words.next()?,
            lock: words.next()?,
        })
    }

    fn boot_id(&self) -> Option<&str> {
        self.handle.split(':').nth(2)
    }

    fn is_running(&self) -> bool {
        let handle = self.handle.parse::<Handle>();
        handle.is_ok_and(|process| process.is_alive().unwrap_or(true))
    }
}

impl LeaseHolder {
    /// A new holder in this process.
    pub(super) fn new(database: &Path) -> Result<Self, StoreError> {
        static NEXT_INSTANCE: AtomicI64 = AtomicI64::new(1);
        let unknown = |error: &dyn fmt::Display| {
            StoreError::Unavailable(format!("cannot identify this process: {error}"))
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.map_err(|error| unknown(&error))?.trim().to_owned();
        let pid = i32::try_from(std::process::id()).map_err(|error| unknown(&error))?;
        let handle = Handle::from_pid(pid).map_err(|error| unknown(&error))?;
        let pid_namespace = fs::read_link("/proc/self/ns/pid");
        let pid_namespace = pid_namespace.map_err(|error| unknown(&error))?;
        Ok(Self {
            host,
            process: Process {
                handle: handle.to_string(),
                pid_namespace: pid_namespace.to_string_lossy().into_owned(),
                lock: Uuid::now_v7().simple().to_string(),
            },
            instance: NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed),
            database: database.to_owned(),
            lock: OnceLock::new(),
        })
    }

    /// Identifies this store as the source of posts.
    pub(super) fn source(&self) -> String {
        format!("{} {} {}", self.host, self.process.handle, self.instance)
    }

    fn lock_path(&self, process: &Process) -> PathBuf {
        let mut path = self.database.as_os_str().to_owned();
        path.push("-lease-");
        path.push(&process.lock);
        path.into()
    }

    /// Locks this holder's file, unless it is locked already.
    fn lock(&self) -> io::Result<()> {
        if self.lock.get().is_some() {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(self.lock_path(&self.process))?;
        file.lock()?;
        let _ = self.lock.set(file);
        Ok(())
    }

    /// Whether another holder is alive, or may be.
    fn is_alive(&self, other: &Process) -> bool {
        let same_boot = other.boot_id() == self.process.boot_id();
        if same_boot && other.pid_namespace == self.process.pid_namespace {
            return other.is_running();
        }
        match File::open(self.lock_path(other)) {
            Err(error) => error.kind() != io::ErrorKind::NotFound,
            Ok(lock) => match lock.try_lock_shared() {
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
                Ok(()) => false,
            },
        }
    }

    /// Fails if the current holder of a session is alive. Removes the lock file of a dead one.
    fn check_holder_is_dead(&self, db: &Connection, session: &SessionId) -> DbResult<()> {
        let Some((host, stored)) = current_holder(db, session)? else {
            return Ok(());
        };
        match Process::parse(&stored) {
            Some(process) if !self.is_alive(&process) => {
                // If this fails, an unlocked file remains, which does no harm.
                let _ = fs::remove_file(self.lock_path(&process));
                Ok(())
            }
            _ => {
                let pid = stored.split(':').next().unwrap_or_default();
                let error = StoreError::InUse {
                    session: session.clone(),
                    holder: format!("process {pid} on {host}"),
                };
                Err(error.into())
            }
        }
    }

    pub(super) fn claim(
        &self,
        db: &Connection,
        session: &SessionId,
        claim: Claim,
    ) -> DbResult<Lease> {
        if claim == Claim::IfFree {
            self.check_holder_is_dead(db, session)?;
        }
        self.lock().map_err(|error| {
            let path = self.lock_path(&self.process);
            StoreError::Unavailable(format!("cannot lock {}: {error}", path.display()))
        })?;
        // A replaced row gets a new epoch.
        let mut replace = db.prepare_cached(
            "REPLACE INTO engine_leases (session, host, process, instance)
             VALUES (?1, ?2, ?3, ?4) RETURNING epoch",
        )?;
        let process = self.process.to_string();
        let row = params![session.as_str(), self.host, process, self.instance];
        let epoch: i64 = replace.query_row(row, |row| row.get(0))?;
        Ok(Lease {
            session: session.clone(),
            epoch: epoch.cast_unsigned(),
        })
    }

    /// The processes that hold one session or any session, and are alive.
    pub(super) fn live_holders(
        &self,
        db: &Connection,
        session: Option<&SessionId>,
    ) -> DbResult<Vec<Holder>> {
        let mut query = db.prepare_cached(
            "SELECT session, host, process FROM engine_leases WHERE ?1 IS NULL OR session = ?1",
        )?;
        let rows = query.query_map([session.map(SessionId::as_str)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
        })?;
        let mut holders = Vec::new();
        for row in rows {
            let (session, host, stored): (String, String, String) = row?;
            let process = Process::parse(&stored);
            if let (Ok(session), Some(process)) = (session.parse(), process)
                && self.is_alive(&process)
            {
                let process = Some(ProcessRef(process.handle));
                holders.push(Holder {
                    session,
                    host,
                    process,
                });
            }
        }
        Ok(holders)
    }

    /// Releases all leases of this holder.
    pub(super) fn release_all(&self, db: &Connection) -> rusqlite::Result<usize> {
        db.execute(
            "DELETE FROM engine_leases WHERE host = ?1 AND process = ?2 AND instance = ?3",
            params![self.host, self.process.to_string(), self.instance],
        )
    }
}

impl Drop for LeaseHolder {
    fn drop(&mut self) {
        if self.lock.get().is_some() {
            // If this fails, an unlocked file remains, which does no harm.
            let _ = fs::remove_file(self.lock_path(&self.process));
        }
    }
}

/// Host and process of a session's holder.
fn current_holder(
    db: &Connection,
    session: &SessionId,
) -> rusqlite::Result<Option<(String, String)>> {
    let mut query =
        db.prepare_cached("SELECT host, process FROM engine_leases WHERE session = ?1")?;
    let holder = query.query_row([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?)));
    holder.optional()
}

/// Releases a lease. One that was lost before is not an error.
pub(super) fn release(db: &Connection, lease: &Lease) -> DbResult<()> {
    let mut release =
        db.prepare_cached("DELETE FROM engine_leases WHERE session = ?1 AND epoch = ?2")?;
    release.execute(params![lease.session.as_str(), lease.epoch.cast_signed()])?;
    Ok(())
}

/// Fails if a lease is no longer valid. Returns the session's log, if the session exists.
pub(super) fn check_lease(db: &Connection, lease: &Lease) -> DbResult<Option<Log>> {
    let mut query = db.prepare_cached(
        "SELECT engine_leases.epoch, engine_sessions.number
         FROM engine_leases LEFT JOIN engine_sessions
         ON engine_sessions.id = engine_leases.session
         WHERE engine_leases.session = ?1",
    )?;
    let row = query.query_row([lease.session.as_str()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
    });
    match row.optional()? {
        Some((epoch, session)) if epoch == lease.epoch.cast_signed() => {
            session.map(|session| Log::load(db, session)).transpose()
        }
        _ => Err(StoreError::Fenced(lease.session.clone()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder that has claimed a session.
    fn active_holder(database: &Path) -> LeaseHolder {
        let holder = LeaseHolder::new(database).unwrap();
        holder.lock().unwrap();
        holder
    }

    #[test]
    fn holder_in_the_same_pid_namespace_is_looked_up_by_process() {
        let dir = tempfile::tempdir().unwrap();
        let holder = active_holder(&dir.path().join("a.db"));
        assert!(holder.is_alive(&holder.process));
        let dead = Process {
            handle: format!("1:2:{}", holder.process.boot_id().unwrap()),
            ..holder.process.clone()
        };
        assert!(!holder.is_alive(&dead));
    }

    #[test]
    fn holder_in_another_pid_namespace_is_alive_while_its_file_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("a.db");
        let (holder, other) = (active_holder(&database), active_holder(&database));
        let in_container = Process {
            handle: format!("1:2:{}", holder.process.boot_id().unwrap()),
            pid_namespace: "pid:[1]".to_owned(),
            ..other.process.clone()
        };
        assert!(holder.is_alive(&in_container));
        // A killed holder leaves an unlocked file.
        other.lock.get().unwrap().unlock().unwrap();
        assert!(!holder.is_alive(&in_container));
        drop(other);
        assert!(!holder.is_alive(&in_container));
        let files = fs::read_dir(dir.path()).unwrap();
        assert_eq!(files.count(), 1, "only the first holder's lock is left");
    }

    #[test]
    fn process_is_parsed_from_its_stored_form() {
        let dir = tempfile::tempdir().unwrap();
        let holder = LeaseHolder::new(&dir.path().join("a.db")).unwrap();
        let process = &holder.process;
        assert_eq!(Process::parse(&process.to_string()).as_ref(), Some(process));
        assert_eq!(Process::parse("1:2:00000000"), None);
    }
}
