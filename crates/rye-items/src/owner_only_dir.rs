//! Folders whose content is believed, since nobody else can write to them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use lillux::{At as _, PathError};

/// Whether a folder for what is derived from files may be used: it is the user's
/// and only they may write to it, or it is not there yet. What somebody else can
/// write to would be their word about our items.
pub fn is_owner_only_dir(folder: &Path) -> bool {
    match fs::metadata(folder) {
        Ok(there) => {
            let ours = there.uid() == rustix::process::geteuid().as_raw();
            there.is_dir() && ours && there.mode() & 0o022 == 0
        }
        Err(_) => true,
    }
}

/// Makes a folder, and what is missing above it, for the user alone.
pub(crate) fn create_owner_only_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes a folder as its own, or says that somebody else can write to it.
pub fn ensure_owner_only_dir(folder: &Path) -> Result<(), PathError> {
    create_owner_only_dir(folder).at("create the folder", folder)?;
    if is_owner_only_dir(folder) {
        return Ok(());
    }
    let theirs = io::Error::new(io::ErrorKind::PermissionDenied, "others can write to it");
    Err(theirs).at("keep private files in", folder)
}
