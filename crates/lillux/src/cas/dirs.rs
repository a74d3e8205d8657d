//! Creates the store's directories so that they survive a crash.
//!
//! A new directory is durable once its parent was synced. The invariant that avoids syncs:
//! **no entry is created in a directory of the store before the directory itself is durable.**
//! So a directory that is not empty needs no sync, whichever process created it, and a put into
//! an existing shard needs two syncs: the file and the shard.

use std::fs;
use std::io;
use std::path::Path;

use crate::PathError;
use crate::durable::{create_dir, sync_dir};
use crate::error::PathContext as _;

/// Creates a directory if it does not exist. The caller syncs the parent.
pub(super) fn create(dir: &Path) -> Result<(), PathError> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        other => other.at("create the directory", dir),
    }
}

/// Creates a directory if it does not exist, and syncs its parent if necessary.
pub(super) fn create_durable(dir: &Path, parent: &Path) -> Result<(), PathError> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Ok(()),
        // Empty: another process may have created it and not synced it yet.
        Ok(false) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => create(dir)?,
        Err(e) => return Err(e).at("read the directory", dir),
    }
    sync_dir(parent)
}

/// Creates the root of a store and its missing parents.
pub(super) fn create_root(root: &Path) -> Result<(), PathError> {
    create_dir(root, 0o777)?;
    // Another process may have created the root and not synced it yet. If the parent is not
    // readable, this process cannot have created the root.
    match root.parent().map(sync_dir) {
        Some(Err(error)) if !error.is_permission() => Err(error),
        _ => Ok(()),
    }
}
