//! Protected files that a command created, until a person decides about them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rye_engine::sandbox::SandboxError;

use crate::files::unusable;

/// Name of the directory in the workspace. It is on the same file system as the files, which are
/// moved there under numbers, so that no program finds them under their names.
pub(super) const DIRECTORY: &str = ".rye-quarantine";

/// Moves files away and back.
#[derive(Debug)]
pub(super) struct Quarantine {
    workspace: PathBuf,
    /// Where each file is now, by its path in the workspace.
    moved: Mutex<HashMap<String, PathBuf>>,
}

impl Quarantine {
    pub(super) fn new(workspace: &Path) -> Self {
        Self {
            workspace: workspace.to_owned(),
            moved: Mutex::default(),
        }
    }

    /// Moves files away and returns their paths.
    pub(super) fn take(&self, files: &[PathBuf]) -> Result<Vec<String>, SandboxError> {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = Vec::new();
        for file in files {
            let name = file.to_string_lossy().into_owned();
            let place = self.free_place();
            let place = place.map_err(|error| failed(&name, &error))?;
            match fs::rename(self.workspace.join(file), &place) {
                Ok(()) => {
                    moved.insert(name.clone(), place);
                    names.push(name);
                }
                // Another command's check has moved it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&name, &error)),
            }
        }
        Ok(names)
    }

    fn free_place(&self) -> io::Result<PathBuf> {
        let dir = self.workspace.join(DIRECTORY);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // A command may have planted a link here, before the name was protected.
        if !fs::symlink_metadata(&dir)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let places = (0_u32..).map(|number| dir.join(number.to_string()));
        let free = |place: &PathBuf| fs::symlink_metadata(place).is_err();
        places
            .into_iter()
            .find(free)
            .ok_or_else(|| io::ErrorKind::AlreadyExists.into())
    }

    /// Moves files back, or removes them.
    pub(super) fn settle(&self, paths: &[String], keep: bool) -> Result<(), SandboxError> {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        for path in paths {
            let Some(place) = moved.remove(path) else {
                continue;
            };
            let settled = if keep {
                self.restore(&place, path)
            } else {
                remove(&place)
            };
            settled.map_err(|error| failed(path, &error))?;
        }
        if moved.is_empty() {
            // Stays if it contains files of an earlier process.
            let _ = fs::remove_dir(self.workspace.join(DIRECTORY));
        }
        Ok(())
    }

    /// Moves a file back, unless a new file has its path.
    fn restore(&self, place: &Path, path: &str) -> io::Result<()> {
        let target = self.workspace.join(path);
        if fs::symlink_metadata(&target).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(place, target)
    }
}

fn remove(place: &Path) -> io::Result<()> {
    if fs::symlink_metadata(place)?.is_dir() {
        fs::remove_dir_all(place)
    } else {
        fs::remove_file(place)
    }
}

fn failed(path: &str, error: &io::Error) -> SandboxError {
    unusable(path, &error.to_string())
}
