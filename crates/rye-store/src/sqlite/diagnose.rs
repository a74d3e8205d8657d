//! A read-only report about a database file, for `rye doctor`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rye_engine::store::StoreError;

use super::error::DbResult;
use super::integrity::{self, Integrity, check_integrity};
use super::{file, read_only};

/// The state of a database file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Format version of the file.
    pub version: u32,
    /// Format version that this program writes.
    pub newest: u32,
    /// Size in bytes.
    pub size: u64,
    /// Result of the integrity check.
    pub integrity: Integrity,
    /// Why the file cannot be written, if so.
    pub read_only: Option<String>,
}

/// Inspects a database file without changing it or its write-ahead log. Stops the integrity
/// check after `timeout`. Returns none if the file does not exist.
pub fn diagnose(path: &Path, timeout: Duration) -> Result<Option<FileReport>, StoreError> {
    integrity::check_not_missing(path).map_err(|failure| failure.explain(path))?;
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(None);
    };
    let inspect = || -> DbResult<FileReport> {
        integrity::check_before_writing(path)?;
        let db = read_only::open(path)?;
        let version = file::format_version(&db)?;
        // A file of another version of Rye is reported, not refused.
        if [0, file::VERSION].contains(&version) {
            file::check_format(&db, path)?;
        }
        Ok(FileReport {
            version,
            newest: file::VERSION,
            size: metadata.len(),
            integrity: check_integrity(&db, timeout)?,
            read_only: read_only::read_only_reason(path),
        })
    };
    inspect().map(Some).map_err(|failure| failure.explain(path))
}
