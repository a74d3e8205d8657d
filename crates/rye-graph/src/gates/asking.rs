//! Which projects have runs that ask: a file for each, in a folder of the person.

use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};

/// Where it is noted that runs of a project ask.
#[derive(Debug, Clone)]
pub struct PendingIndex {
    folder: PathBuf,
    project: PathBuf,
}

impl PendingIndex {
    pub(crate) fn new(folder: PathBuf, project: &Path) -> Self {
        let project = fs::canonicalize(project).unwrap_or_else(|_| project.to_owned());
        Self { folder, project }
    }

    /// Notes it. Without the note the questions are still found from within the project.
    pub(crate) fn note(&self) {
        let path = self.folder.as_path();
        let project = self.project.as_os_str().as_bytes();
        let name = lillux::Hash::digest(project).to_hex();
        let path = path.join(&name[..16]);
        if !path.exists() && durable::create_dir(&self.folder, 0o700).is_ok() {
            let _ = durable::write(&path, project, 0o600, IfExists::Replace);
        }
    }

    /// The projects that are noted in a folder.
    pub fn projects(folder: &Path) -> Vec<PathBuf> {
        let notes = fs::read_dir(folder).into_iter().flatten().flatten();
        let projects = notes.filter_map(|note| {
            let path = fs::read(note.path()).ok()?;
            Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
        });
        let mut projects: Vec<_> = projects.filter(|path| path.is_dir()).collect();
        projects.sort();
        projects
    }
}
