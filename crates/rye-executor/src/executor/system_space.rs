//! Writes the embedded bundle of the system space to the cache, for processes that read its files.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lillux::{PathContext as _, PathError};
use rye_items::{EmbeddedBundle, is_owner_only_dir};

/// Returns the directory that contains the `.ai/` of an embedded bundle, and writes it if it does
/// not exist. The hash of the content is part of the path.
pub(super) fn materialise(embedded: &EmbeddedBundle, cache: &Path) -> Result<PathBuf, PathError> {
    let parent = cache.join("system");
    let dir = parent.join(embedded.hash);
    if !is_owner_only_dir(&dir) {
        let error = io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users can write to it",
        );
        return Err(error).at("use the system space in", &dir);
    }
    if dir.join(".ai").is_dir() {
        return Ok(dir);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&parent)
        .at("create the directory", &parent)?;
    let temporary = tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(&parent)
        .at("create a directory in", &parent)?;
    for file in embedded.files {
        let path = temporary.path().join(".ai").join(file.path);
        let parent = path.parent().unwrap_or(&path);
        fs::create_dir_all(parent).at("create the directory", parent)?;
        let mut opened = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .at("create", &path)?;
        opened.write_all(file.bytes).at("write", &path)?;
    }
    let temporary = temporary.keep();
    match fs::rename(&temporary, &dir) {
        Ok(()) => Ok(dir),
        // Another process created it at the same time.
        Err(_) if dir.join(".ai").is_dir() => {
            let _ = fs::remove_dir_all(temporary);
            Ok(dir)
        }
        Err(error) => Err(error).at("create", &dir),
    }
}
