//! File operations of the confined sandbox: those of the workspace, limited to paths that
//! commands can see.

use std::path::{Path, PathBuf};

use lillux::path_policy::{PathClass, resolve};
use rye_engine::protocol::ProjectAccess;
use rye_engine::sandbox::{FileInfo, ResolvedPath, SandboxError, WalkOptions};
use serde::{Deserialize, Serialize};

use super::policy::ResolvedPolicy;
use crate::local::LocalFiles;

/// System directories that the file tools can read, as commands can.
const SYSTEM: [&str; 4] = ["/usr", "/opt", "/bin", "/sbin"];

/// An operation that another process performs, because it has another view of the files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileRequest {
    pub(super) operation: FileOperation,
    /// What the operation may use.
    pub(super) policy: ResolvedPolicy,
}

/// An operation on files. The bytes that it reads or writes are sent separately.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileOperation {
    Visible(String),
    Resolve(String),
    Read(String),
    Walk(WalkOptions),
    Write(String),
    WriteResolved(String, ResolvedPath),
    List(String),
    Stat(String),
    Mkdir(String),
    Rm(String),
    Rmdir(String),
    SetExecutable(String, bool),
    /// The guards of protected files, as arguments of the launcher.
    Guards,
}

/// The files that commands can see. All operations block.
#[derive(Clone)]
pub(super) struct ConfinedFiles {
    pub(super) local: LocalFiles,
    pub(super) policy: ResolvedPolicy,
    /// What commands see as `/tmp`.
    pub(super) tmp: PathBuf,
}

impl ConfinedFiles {
    /// The path of the host for a path inside of the sandbox: `/tmp` is another directory, but
    /// the workspace may be below it.
    pub(super) fn host_path(&self, path: &str) -> String {
        let absolute = Path::new(path);
        let policy = &self.policy;
        let listed = policy.read.iter().chain(&policy.write);
        let mut mounted = listed
            .map(PathBuf::as_path)
            .chain([&*policy.workspace, &*self.tmp]);
        match absolute.strip_prefix("/tmp") {
            Ok(below) if !mounted.any(|dir| absolute.starts_with(dir)) => {
                let path = self.tmp.join(below);
                path.to_string_lossy().into_owned()
            }
            _ => path.to_owned(),
        }
    }

    /// The real path of a file that commands can see.
    pub(super) fn visible(&self, path: &str) -> Result<PathBuf, SandboxError> {
        let real = self.local.real_path(&self.host_path(path))?;
        if self.is_visible(&real) {
            return Ok(real);
        }
        Err(SandboxError::Outside(path.to_owned()))
    }

    pub(super) fn is_visible(&self, real: &Path) -> bool {
        let policy = &self.policy;
        let listed = policy
            .read
            .iter()
            .chain(&policy.write)
            .map(PathBuf::as_path);
        let workspace = Some(&*policy.workspace).filter(|_| policy.access != ProjectAccess::None);
        let own = [&*self.tmp].into_iter().chain(workspace);
        let mut all = own.chain(SYSTEM.map(Path::new)).chain(listed);
        all.any(|dir| {
            real.starts_with(dir) || resolve(dir).is_some_and(|dir| real.starts_with(dir))
        })
    }

    fn is_tmp(&self, path: &str) -> bool {
        let real = self.local.real_path(&self.host_path(path));
        real.is_ok_and(|real| real.starts_with(&self.tmp))
    }

    pub(super) fn resolve_path(&self, path: &str) -> ResolvedPath {
        if self.is_tmp(path) {
            return ResolvedPath {
                path: path.to_owned(),
                class: PathClass::Plain,
            };
        }
        self.local.resolve_path(path)
    }

    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, SandboxError> {
        self.visible(path)?;
        self.local.read(&self.host_path(path))
    }

    /// The walk with a path of the host.
    pub(super) fn host_walk(&self, walk: &WalkOptions) -> Result<WalkOptions, SandboxError> {
        self.visible(&walk.path)?;
        Ok(WalkOptions {
            path: self.host_path(&walk.path),
            ..walk.clone()
        })
    }

    /// Refuses a path that commands cannot write. What is protected is for the caller to ask about.
    fn check_writable(&self, path: &str) -> Result<(), SandboxError> {
        let real = self.local.real_path(&self.host_path(path))?;
        let policy = &self.policy;
        let own = [policy.workspace.as_path(), &*self.tmp];
        let listed = policy.write.iter().map(PathBuf::as_path);
        let is_writable = own.into_iter().chain(listed).any(|dir| {
            real.starts_with(dir) || resolve(dir).is_some_and(|dir| real.starts_with(dir))
        });
        if is_writable {
            return Ok(());
        }
        Err(SandboxError::Outside(path.to_owned()))
    }

    pub(super) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.check_writable(path)?;
        self.local.write(&self.host_path(path), bytes)
    }

    pub(super) fn write_resolved(
        &self,
        path: &str,
        permitted: &ResolvedPath,
        bytes: &[u8],
    ) -> Result<(), SandboxError> {
        if self.resolve_path(path) != *permitted {
            return Err(SandboxError::PathChanged(path.to_owned()));
        }
        self.check_writable(path)?;
        if self.is_tmp(path) {
            return self.write(path, bytes);
        }
        self.local.write_resolved(path, permitted, bytes)
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<FileInfo>, SandboxError> {
        self.visible(path)?;
        self.local.list(&self.host_path(path))
    }

    pub(super) fn stat(&self, path: &str) -> Result<FileInfo, SandboxError> {
        self.visible(path)?;
        self.local.stat(&self.host_path(path))
    }

    pub(super) fn mkdir(&self, path: &str) -> Result<(), SandboxError> {
        self.check_writable(path)?;
        self.local.mkdir(&self.host_path(path))
    }

    pub(super) fn set_executable(&self, path: &str, executable: bool) -> Result<(), SandboxError> {
        self.check_writable(path)?;
        self.local.set_executable(&self.host_path(path), executable)
    }

    pub(super) fn rmdir(&self, path: &str) -> Result<(), SandboxError> {
        self.check_writable(path)?;
        self.local.rmdir(&self.host_path(path))
    }

    pub(super) fn rm(&self, path: &str) -> Result<(), SandboxError> {
        let host_path = self.host_path(path);
        // A link is removed itself, wherever it points.
        let link = Path::new(&host_path);
        let is_link = self.local.workspace().join(link).is_symlink() && !path.ends_with('/');
        match link.parent().and_then(Path::to_str).filter(|_| is_link) {
            Some(parent) => self.check_writable(parent)?,
            None => self.check_writable(path)?,
        }
        self.local.rm(&host_path)
    }
}
