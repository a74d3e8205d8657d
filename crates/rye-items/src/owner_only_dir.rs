//! Cache directories that only the current user can write to, and the files in them.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use lillux::{PathContext as _, PathError};

/// Cache files that were not used for this long are deleted.
const MAX_AGE: Duration = Duration::from_hours(24 * 30);

/// Whether a directory belongs to the current user and no one else may write to it. A
/// directory that does not exist yet counts, because it will be created with mode 0700.
///
/// Another user who can write to a cache could replace what we derived from verified files.
pub fn is_owner_only_dir(dir: &Path) -> bool {
    match fs::metadata(dir) {
        Ok(metadata) => {
            let is_owner = metadata.uid() == rustix::process::geteuid().as_raw();
            metadata.is_dir() && is_owner && metadata.mode() & 0o022 == 0
        }
        Err(_) => true,
    }
}

/// Creates a directory and its missing parents with mode 0700.
pub(crate) fn create_owner_only_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Creates a directory with mode 0700 if it is missing, and fails if others can write to it.
pub fn ensure_owner_only_dir(dir: &Path) -> Result<(), PathError> {
    create_owner_only_dir(dir).at("create the directory", dir)?;
    if is_owner_only_dir(dir) {
        return Ok(());
    }
    let error = io::Error::new(io::ErrorKind::PermissionDenied, "others can write to it");
    Err(error).at("store private files in", dir)
}

/// Writes a cache file and deletes old files of its directory. Readers see the old file or the
/// whole new one; nothing is synced.
pub(crate) fn write_cache_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    create_owner_only_dir(dir)?;
    // Created with mode 0600, and deleted if anything fails.
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    let now = SystemTime::now();
    for entry in fs::read_dir(dir)?.flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|time| is_older(time, now, MAX_AGE)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

pub(crate) fn is_older(time: SystemTime, now: SystemTime, age: Duration) -> bool {
    now.duration_since(time).is_ok_and(|passed| passed > age)
}
