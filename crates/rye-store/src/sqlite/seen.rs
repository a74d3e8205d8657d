//! How a file was left by those who write to it here.
//!
//! Beside `NAME` lies `NAME-seen`, which says so. Where the file is another by now, somebody
//! else has written to it: a backup was put back, or a disk has gone wrong. Then it is checked
//! before anything is added to it. That takes a millisecond for each megabyte, which is too
//! long to do each time.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::damage::Health;

/// The file as it is now: how long, and when somebody last wrote to it.
fn now(path: &Path) -> Option<String> {
    let there = fs::metadata(path).ok()?;
    let written = there.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {}\n", there.len(), written.as_nanos()))
}

fn beside(path: &Path) -> PathBuf {
    let mut seen = path.as_os_str().to_owned();
    seen.push("-seen");
    seen.into()
}

/// Whether somebody else has written to a file since it was left. One in which nothing is has
/// been made just now.
pub(super) fn is_changed(path: &Path) -> bool {
    let is_empty = fs::metadata(path).is_ok_and(|it| it.len() == 0);
    !is_empty && fs::read_to_string(beside(path)).ok() != now(path)
}

/// Whether there was something in a file when it was left.
pub(super) fn had_something(path: &Path) -> bool {
    let noted = fs::read_to_string(beside(path));
    noted.is_ok_and(|noted| !noted.starts_with("0 "))
}

/// A file is about to be made: how another of its name was left is of no interest any more.
pub(super) fn forget(path: &Path) {
    // If it cannot be, the file is looked at once more.
    let _ = fs::remove_file(beside(path));
}

fn note(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())
}

/// Notes down how a file is left, when it is dropped: after the file is closed.
pub(super) struct Note {
    path: PathBuf,
    health: Arc<Health>,
}

impl Note {
    pub(super) fn new(path: &Path, health: Arc<Health>) -> Self {
        let path = path.to_owned();
        Self { path, health }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if self.health.damage().is_none()
            && is_changed(&self.path)
            && let Some(now) = now(&self.path)
        {
            // What is not noted is checked the next time.
            let _ = note(&beside(&self.path), &now);
        }
    }
}
