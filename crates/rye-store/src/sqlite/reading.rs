//! A file that is only read: because nothing may be written beside it, or because nothing
//! should be.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};
use rye_engine::store::StoreError;

use super::damage::log_of;
use super::error::Outcome;
use super::file;

/// A connection that leaves no trace where it can be had: nothing is made beside a file that
/// nobody has open. Else it takes part in what those who have it open do.
pub(super) fn connect(path: &Path) -> Outcome<Connection> {
    let log = fs::metadata(log_of(path)).map(|log| log.len());
    let Ok(length) = log else {
        return Ok(without_log(path)?);
    };
    match beside(path) {
        // Those who had it open have put all of it into the file.
        Err(_) if length == 0 => Ok(without_log(path)?),
        Err(error) if is_read_only(path).is_some() => {
            let message = format!(
                "{0} has not all that was written yet: the rest is in {1}, which cannot be read \
                 where nothing may be written ({error}). Copy the folder, and name the copy with \
                 RYE_STATE_DIR",
                path.display(),
                log_of(path).display()
            );
            Err(StoreError::Unavailable(message).into())
        }
        db => Ok(db?),
    }
}

/// As all who have it open see it.
fn beside(path: &Path) -> rusqlite::Result<Connection> {
    let db = file::reader(path)?;
    // Only now it is looked at.
    file::version(&db)?;
    Ok(db)
}

/// The file itself, as if nobody wrote to it: SQLite looks for no locks, and for nothing
/// beside it.
pub(super) fn without_log(path: &Path) -> rusqlite::Result<Connection> {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(byte) {
            address.push(char::from(*byte));
        } else {
            let _ = write!(address, "%{byte:02x}");
        }
    }
    address.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(address, flags)
}

/// Why nothing can be written to a file or beside it, if that is so.
pub(super) fn is_read_only(path: &Path) -> Option<String> {
    let folder = path.parent().unwrap_or(path);
    let both = [folder, path].into_iter();
    let mut refused = both.filter_map(|place| access(place, Access::WRITE_OK).err());
    refused.next().map(|error| error.to_string())
}

/// Whether a file can be read though it cannot be written to.
pub(super) fn try_to_read(path: &Path) -> Outcome<()> {
    let db = connect(path)?;
    file::check(&db, path)
}

/// What changes when somebody writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp([Option<(u64, SystemTime)>; 2]);

impl Stamp {
    pub(super) fn of(path: &Path) -> Self {
        let look = |path: &Path| {
            let there = fs::metadata(path).ok()?;
            Some((there.len(), there.modified().ok()?))
        };
        Self([look(path), look(&log_of(path))])
    }
}
