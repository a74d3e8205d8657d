//! Cache directories that only the current user can write to.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use lillux::{PathContext as _, PathError};

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
