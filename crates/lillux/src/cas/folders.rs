//! Folders whose names survive a crash.
//!
//! A new name is on the disk once the folder that holds it was synced. The
//! rule that keeps syncs few: **nothing is put into a folder of the store
//! before the folder's own name is on the disk.** Hence a folder that holds
//! something needs no more care, whichever process made it, and a put into a
//! shard in use costs two syncs: its file and its shard.

use std::fs;
use std::io;
use std::path::Path;

use crate::PathError;
use crate::durable::{create_dir, sync_dir};
use crate::error::PathContext as _;

/// Makes a folder, or leaves the one that is there. Its name is not on the disk yet.
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
    sync_dir(parent)
}

/// Makes the root of a store, and the folders above it that are missing.
pub(super) fn make_root(root: &Path) -> Result<(), PathError> {
    create_dir(root, 0o777)?;
    // It may be there because another process made it a moment ago. Where the
    // folder above may not be read it was there before us.
    match root.parent().map(sync_dir) {
        Some(Err(error)) if !error.is_permission() => Err(error),
        _ => Ok(()),
    }
}
