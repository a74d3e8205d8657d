//! Reading a database file without writing to it or next to it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};
use rye_engine::store::StoreError;

use super::error::DbResult;
use super::file;
use super::integrity::wal_path;

/// Opens a file for reading. Creates no files next to it if no process has it open; otherwise
/// uses the write-ahead log of those processes.
pub(super) fn open(path: &Path) -> DbResult<Connection> {
    let wal = fs::metadata(wal_path(path)).map(|wal| wal.len());
    let Ok(wal_length) = wal else {
        return Ok(open_immutable(path)?);
    };
    match open_with_wal(path) {
        // The log has been copied into the file.
        Err(_) if wal_length == 0 => Ok(open_immutable(path)?),
        Err(error) if read_only_reason(path).is_some() => {
            let message = format!(
                "{file} is incomplete without its write-ahead log {wal}, which cannot be read in \
                 a read-only directory ({error}). Copy the directory and set RYE_STATE_DIR to the \
                 copy",
                file = path.display(),
                wal = wal_path(path).display()
            );
            Err(StoreError::Unavailable(message).into())
        }
        db => Ok(db?),
    }
}

fn open_with_wal(path: &Path) -> rusqlite::Result<Connection> {
    let db = file::open_reader(path)?;
    // SQLite opens the files at the first query.
    file::format_version(&db)?;
    Ok(db)
}

/// Opens the file alone: SQLite takes no locks and ignores the write-ahead log.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags)
}

/// Why the file or its directory cannot be written, if so.
pub(super) fn read_only_reason(path: &Path) -> Option<String> {
    let dir = path.parent().unwrap_or(path);
    let paths = [dir, path].into_iter();
    let mut errors = paths.filter_map(|path| access(path, Access::WRITE_OK).err());
    errors.next().map(|error| error.to_string())
}

/// Checks that a file can be read and has the right format.
pub(super) fn check_readable(path: &Path) -> DbResult<()> {
    let db = open(path)?;
    file::check_format(&db, path)
}

/// Size and modification time of a file and its log, to detect writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangeStamp([Option<(u64, SystemTime)>; 2]);

impl ChangeStamp {
    pub(super) fn read(path: &Path) -> Self {
        let stamp = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.len(), metadata.modified().ok()?))
        };
        Self([stamp(path), stamp(&wal_path(path))])
    }
}
