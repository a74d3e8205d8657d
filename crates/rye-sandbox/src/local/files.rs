//! File operations in a directory of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lillux::path_policy::{ClassifiedPath, PathPolicy, PrivateDirs, ProtectedPaths};
use rye_engine::sandbox::{FileInfo, ResolvedPath, SandboxError, WalkOptions, WalkResult};

use super::path::{self, LocalPath, MAX_FILE_SIZE};
use super::tree;

/// The files of a workspace, and the policy about private paths. All operations block.
#[derive(Clone)]
pub(crate) struct LocalFiles {
    workspace: PathBuf,
    policy: Arc<PathPolicy>,
}

impl LocalFiles {
    /// The files of an existing directory.
    pub(crate) fn new(workspace: impl AsRef<Path>) -> io::Result<Self> {
        let workspace = fs::canonicalize(workspace)?;
        if !workspace.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            policy: Arc::new(PathPolicy::new(&workspace, ProtectedPaths::default())),
            workspace,
        })
    }

    /// Sets the private directories, the user's home directories, and the project.
    #[must_use]
    pub(crate) fn protected(mut self, protected: ProtectedPaths, project: &Path) -> Self {
        let policy = PathPolicy::new(&self.workspace, protected);
        self.policy = Arc::new(policy.within_project(project));
        self
    }

    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn path(&self, path: &str) -> LocalPath {
        self.path_with(path, &Arc::new(self.policy.private()))
    }

    fn path_with(&self, path: &str, private: &Arc<PrivateDirs>) -> LocalPath {
        LocalPath {
            given: path.to_owned(),
            path: self.workspace.join(path),
            private: Arc::clone(private),
        }
    }

    /// The real path of a file. Fails if it is private.
    pub(crate) fn real_path(&self, path: &str) -> Result<PathBuf, SandboxError> {
        self.path(path).real()
    }

    /// Resolves a path as shown to the user.
    pub(crate) fn resolve_path(&self, path: &str) -> ResolvedPath {
        self.resolve_target(path).0
    }

    /// Resolves a path: as shown to the user, and the real path.
    fn resolve_target(&self, path: &str) -> (ResolvedPath, PathBuf) {
        let ClassifiedPath { real, class } = self.policy.classify(path);
        let path = if path::normalize(&self.workspace.join(path)) == real {
            path.to_owned()
        } else {
            let relative = real.strip_prefix(&self.workspace).unwrap_or(&real);
            relative.to_string_lossy().into_owned()
        };
        (ResolvedPath { path, class }, real)
    }

    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, SandboxError> {
        self.path(path).read(MAX_FILE_SIZE)
    }

    pub(crate) fn read_many(
        &self,
        paths: &[String],
        max_size: u64,
    ) -> Vec<Result<Vec<u8>, SandboxError>> {
        let private = Arc::new(self.policy.private());
        let read = |path: &String| self.path_with(path, &private).read(max_size);
        paths.iter().map(read).collect()
    }

    pub(crate) fn walk(
        &self,
        walk: &WalkOptions,
        is_stopped: &AtomicBool,
    ) -> Result<WalkResult, SandboxError> {
        tree::walk(&self.path(&walk.path), walk, is_stopped)
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.path(path).write(bytes)
    }

    /// Writes a file if its path still resolves to the permitted one.
    pub(crate) fn write_resolved(
        &self,
        path: &str,
        permitted: &ResolvedPath,
        bytes: &[u8],
    ) -> Result<(), SandboxError> {
        let (found, real) = self.resolve_target(path);
        if found != *permitted {
            return Err(SandboxError::PathChanged(path.to_owned()));
        }
        // No link is followed from here on, so this writes to the path that was compared.
        self.path(path).write_at(&real, bytes)
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<FileInfo>, SandboxError> {
        self.path(path).list()
    }

    pub(crate) fn stat(&self, path: &str) -> Result<FileInfo, SandboxError> {
        self.path(path).info()
    }

    pub(crate) fn stat_many(&self, paths: &[String]) -> Vec<Result<FileInfo, SandboxError>> {
        let private = Arc::new(self.policy.private());
        let stat = |path: &String| self.path_with(path, &private).info();
        paths.iter().map(stat).collect()
    }

    pub(crate) fn set_executable(&self, path: &str, executable: bool) -> Result<(), SandboxError> {
        self.path(path).set_executable(executable)
    }

    pub(crate) fn mkdir(&self, path: &str) -> Result<(), SandboxError> {
        let path = self.path(path);
        let created = PathPolicy::create_dir(&path.real()?);
        created.map(drop).map_err(|error| path.error(&error))
    }

    pub(crate) fn rm(&self, path: &str) -> Result<(), SandboxError> {
        self.path(path).remove(&self.workspace)
    }

    pub(crate) fn rmdir(&self, path: &str) -> Result<(), SandboxError> {
        self.path(path).remove_empty(&self.workspace)
    }
}
