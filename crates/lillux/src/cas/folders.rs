//! Folders whose names survive a crash.
//!
//! A new name is on the disk once the folder that holds it was synced. The
//! rule that keeps syncs few: **nothing is put into a folder of the store
//! before the folder's own name is on the disk.** Hence a folder that holds
//! something needs no more care, whichever process made it, and a put into a
//! shard in use costs two syncs: its file and its shard.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::PathError;
use crate::error::At as _;

/// Sees that the names in a folder are on the disk.
pub(super) fn sync(folder: &Path) -> Result<(), PathError> {
    File::open(folder)
        .and_then(|f| f.sync_all())
        .at("write to disk", folder)
}

/// Makes a folder, or leaves the one that is there.
pub(super) fn make(folder: &Path) -> Result<(), PathError> {
    match fs::create_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        other => other.at("create the folder", folder),
    }
}

/// Makes a folder in one of the store's, and sees that its name is on the disk.
pub(super) fn make_durable(folder: &Path, parent: &Path) -> Result<(), PathError> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Ok(()),
        // Empty: another process may have made it and not synced it yet.
        Ok(false) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => make(folder)?,
        Err(e) => return Err(e).at("read the folder", folder),
    }
    sync(parent)
}

/// Makes a folder and those above it that are missing, names on the disk.
pub(super) fn make_all(folder: &Path) -> Result<(), PathError> {
    let Some(parent) = folder.parent() else {
        return Ok(());
    };
    if !parent.try_exists().at("look at", parent)? {
        make_all(parent)?;
    }
    make(folder)?;
    sync(parent)
}
