//! Who has a session: claims, and whether those who made them are alive.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};

use lillux::process::Handle;
use rusqlite::{Connection, OptionalExtension, params};
use rye_engine::store::{Claim, Lease, StoreError};
use rye_protocol::SessionId;

use super::error::Outcome;
use super::log::Log;

/// A store that is open, in a process, on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    host: String,
    process: String,
    /// One process may open a file twice.
    instance: i64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.process.split(':').next().unwrap_or_default();
        write!(f, "process {pid} on {}", self.host)
    }
}

impl Holder {
    /// A new one in this process.
    pub(super) fn new() -> Result<Self, StoreError> {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let unknown = |error: &dyn fmt::Display| {
            StoreError::Unavailable(format!("this process cannot be told from others: {error}"))
        };
        let host = fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.map_err(|error| unknown(&error))?.trim().to_owned();
        let pid = i32::try_from(std::process::id()).map_err(|error| unknown(&error))?;
        let process = Handle::of_running(pid).map_err(|error| unknown(&error))?;
        Ok(Self {
            host,
            process: process.to_string(),
            instance: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// A name for what this one posts.
    pub(super) fn source(&self) -> String {
        format!("{} {} {}", self.host, self.process, self.instance)
    }

    /// Whether it can still write, as seen from a process that can. Of a process on another
    /// host, or one that cannot be looked at, nothing is known, so it counts as alive.
    fn is_alive(&self, me: &Self) -> bool {
        if self.host != me.host {
            return true;
        }
        match self.process.parse::<Handle>() {
            Ok(process) => process.is_alive().unwrap_or(true),
            Err(_) => false,
        }
    }

    pub(super) fn claim(
        &self,
        db: &Connection,
        session: &SessionId,
        claim: Claim,
    ) -> Outcome<Lease> {
        if claim == Claim::IfFree
            && let Some(holder) = Self::of(db, session)?
            && holder.is_alive(self)
        {
            let error = StoreError::Held {
                session: session.clone(),
                holder: holder.to_string(),
            };
            return Err(error.into());
        }
        // A row that is replaced gets a new number, which is the epoch.
        let mut take = db.prepare_cached(
            "REPLACE INTO engine_leases (session, host, process, instance)
             VALUES (?1, ?2, ?3, ?4) RETURNING epoch",
        )?;
        let mine = params![session.as_str(), self.host, self.process, self.instance];
        let epoch: i64 = take.query_row(mine, |row| row.get(0))?;
        Ok(Lease {
            session: session.clone(),
            epoch: epoch.cast_unsigned(),
        })
    }

    fn of(db: &Connection, session: &SessionId) -> rusqlite::Result<Option<Self>> {
        let mut find = db.prepare_cached(
            "SELECT host, process, instance FROM engine_leases WHERE session = ?1",
        )?;
        let holder = find.query_row([session.as_str()], |row| {
            Ok(Self {
                host: row.get(0)?,
                process: row.get(1)?,
                instance: row.get(2)?,
            })
        });
        holder.optional()
    }

    /// Gives back all that it holds.
    pub(super) fn release_all(&self, db: &Connection) -> rusqlite::Result<usize> {
        db.execute(
            "DELETE FROM engine_leases WHERE host = ?1 AND process = ?2 AND instance = ?3",
            params![self.host, self.process, self.instance],
        )
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

    #[test]
    fn whoever_cannot_be_seen_counts_as_alive_and_who_is_gone_does_not() {
        let me = Holder::new().unwrap();
        let elsewhere = Holder {
            host: "elsewhere.example".to_owned(),
            process: "1:2:00000000".to_owned(),
            instance: 1,
        };
        let gone = Holder {
            host: me.host.clone(),
            ..elsewhere.clone()
        };
        assert!(me.is_alive(&me));
        assert!(elsewhere.is_alive(&me));
        assert!(!gone.is_alive(&me));
        assert_eq!(elsewhere.to_string(), "process 1 on elsewhere.example");
    }
}
