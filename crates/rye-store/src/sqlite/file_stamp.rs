//! Detects changes to a database file by other programs.
//!
//! When a store closes `NAME`, it records the file's size and modification time in
//! `NAME-stamp`. If they differ when the file is opened, another program has written to it (a
//! restored backup, a failing disk), and the store checks the file first. The check takes a
//! millisecond per megabyte, which is too slow to do it every time.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::integrity::FileHealth;

/// Current size and modification time of the file.
fn current_stamp(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {}\n", metadata.len(), modified.as_nanos()))
}

fn stamp_path(path: &Path) -> PathBuf {
    let mut stamp = path.as_os_str().to_owned();
    stamp.push("-stamp");
    stamp.into()
}

/// Whether the file differs from its stamp. An empty file is new and counts as unchanged.
pub(super) fn is_changed(path: &Path) -> bool {
    let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0);
    !is_empty && fs::read_to_string(stamp_path(path)).ok() != current_stamp(path)
}

/// Whether the file had content when it was last closed.
pub(super) fn had_content(path: &Path) -> bool {
    let stamp = fs::read_to_string(stamp_path(path));
    stamp.is_ok_and(|stamp| !stamp.starts_with("0 "))
}

/// Removes the stamp of an earlier file with this name.
pub(super) fn remove(path: &Path) {
    // If this fails, the file is checked once more than necessary.
    let _ = fs::remove_file(stamp_path(path));
}

fn write(path: &Path, stamp: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(stamp.as_bytes())
}

/// Writes the stamp when it is dropped. Drop it after the database is closed.
pub(super) struct StampOnDrop {
    path: PathBuf,
    health: Arc<FileHealth>,
}

impl StampOnDrop {
    pub(super) fn new(path: &Path, health: Arc<FileHealth>) -> Self {
        let path = path.to_owned();
        Self { path, health }
    }
}

impl Drop for StampOnDrop {
    fn drop(&mut self) {
        if self.health.damage().is_none()
            && is_changed(&self.path)
            && let Some(stamp) = current_stamp(&self.path)
        {
            // If this fails, the file is checked next time.
            let _ = write(&stamp_path(&self.path), &stamp);
        }
    }
}
