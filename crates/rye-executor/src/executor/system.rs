//! The embedded system space as a folder, for processes that open its files.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lillux::{PathContext as _, PathError};
use rye_items::{EmbeddedBundle, is_owner_only_dir};

/// The folder with the `.ai/` of an embedded space, written if it is not there
/// yet. It is named by the hash of its content, so it is written once.
pub(super) fn folder(embedded: &EmbeddedBundle, cache: &Path) -> Result<PathBuf, PathError> {
    let all = cache.join("system");
    let folder = all.join(embedded.hash);
    if !is_owner_only_dir(&folder) {
        let theirs = io::Error::new(io::ErrorKind::PermissionDenied, "others can write to it");
        return Err(theirs).at("use the system space in", &folder);
    }
    if folder.join(".ai").is_dir() {
        return Ok(folder);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&all)
        .at("create the folder", &all)?;
    let temporary = tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(&all)
        .at("create a folder in", &all)?;
    for file in embedded.files {
        let path = temporary.path().join(".ai").join(file.path);
        let parent = path.parent().unwrap_or(&path);
        fs::create_dir_all(parent).at("create the folder", parent)?;
        let mut opened = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .at("create", &path)?;
        opened.write_all(file.bytes).at("write", &path)?;
    }
    let temporary = temporary.keep();
    match fs::rename(&temporary, &folder) {
        Ok(()) => Ok(folder),
        // Another process was quicker.
        Err(_) if folder.join(".ai").is_dir() => {
            let _ = fs::remove_dir_all(temporary);
            Ok(folder)
        }
        Err(error) => Err(error).at("move into place", &folder),
    }
}
