//! Index of projects whose runs opened gates: one file per project in the user's state directory.

use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};

/// Records that a project has runs with gates.
#[derive(Debug, Clone)]
pub struct PendingIndex {
    dir: PathBuf,
    project: PathBuf,
}

impl PendingIndex {
    pub(crate) fn new(dir: PathBuf, project: &Path) -> Self {
        let project = fs::canonicalize(project).unwrap_or_else(|_| project.to_owned());
        Self { dir, project }
    }

    /// Adds the project. Errors are ignored: the gates can still be found from the project.
    pub(crate) fn add(&self) {
        let path = self.dir.as_path();
        let project = self.project.as_os_str().as_bytes();
        let name = lillux::Hash::digest(project).to_hex();
        let path = path.join(&name[..16]);
        if !path.exists() && durable::create_dir(&self.dir, 0o700).is_ok() {
            let _ = durable::write(&path, project, 0o600, IfExists::Replace);
        }
    }

    /// Projects in the index directory.
    pub fn projects(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let projects = entries.filter_map(|entry| {
            let path = fs::read(entry.path()).ok()?;
            Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
        });
        let mut projects: Vec<_> = projects.filter(|path| path.is_dir()).collect();
        projects.sort();
        projects
    }
}
