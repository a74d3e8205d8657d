//! File operations on a path of this machine.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lillux::durable::{self, IfExists, WriteError};
use lillux::path_policy::{PathPolicy, PrivateDirs, resolve};
use rustix::fs::OFlags;
use rye_engine::sandbox::{FileInfo, SandboxError};

use crate::files::unusable;

/// Permission of the owner to execute a file.
const OWNER_EXECUTES: u32 = 0o100;
/// Maximum size of a file that is read.
pub(super) const MAX_FILE_SIZE: u64 = 64 * 1024 * 1024;

/// A path that a tool uses.
pub(super) struct LocalPath {
    /// The path as given by the caller, for messages.
    pub(super) given: String,
    /// The absolute path, with links.
    pub(super) path: PathBuf,
    pub(super) private: Arc<PrivateDirs>,
}

impl LocalPath {
    pub(super) fn read(&self, max_size: u64) -> Result<Vec<u8>, SandboxError> {
        let (file, metadata) = self.open(&self.real()?, OFlags::RDONLY)?;
        let room = metadata.len().min(max_size).saturating_add(1);
        let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or_default());
        file.take(max_size.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| self.error(&error))?;
        if bytes.len() as u64 > max_size {
            let reason = format!("too large to read at once: {} bytes", metadata.len());
            return Err(unusable(&self.given, &reason));
        }
        Ok(bytes)
    }

    /// The real path, without links. Fails if it is private.
    pub(super) fn real(&self) -> Result<PathBuf, SandboxError> {
        let real = resolve(&self.path);
        let real = real.ok_or_else(|| unusable(&self.given, "its links form a loop"))?;
        if self.private.contains(&real) {
            return Err(SandboxError::Private(self.given.clone()));
        }
        Ok(real)
    }

    /// Writes the file atomically.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), SandboxError> {
        self.write_at(&self.real()?, bytes)
    }

    /// Writes to `real`, the real path of this one, without following links.
    pub(super) fn write_at(&self, real: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        if self.private.contains(real) {
            return Err(SandboxError::Private(self.given.clone()));
        }
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(unusable(&self.given, "is a directory"));
        };
        // From here on, the file is accessed through the open directory.
        let dir = PathPolicy::create_dir(parent).map_err(|error| self.error(&error))?;
        let path = dir.join(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let written = durable::write(&path, bytes, 0o666, IfExists::Replace);
                written.map_err(|error| self.write_error(error))
            }
            _ => self.overwrite(real, &path, bytes),
        }
    }

    /// Replaces an existing file. Writes in place if the file has several hard links or if its
    /// directory is not writable.
    fn overwrite(&self, real: &Path, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        // Opening checks the write permission, which a rename would not.
        let (mut file, metadata) = self.open(real, OFlags::WRONLY)?;
        if metadata.nlink() == 1 {
            match durable::rewrite(path, bytes) {
                Ok(()) => return Ok(()),
                Err(WriteError::Path(error)) if error.is_permission() => {}
                Err(error) => return Err(self.write_error(error)),
            }
        }
        let written = file.set_len(0).and_then(|()| file.write_all(bytes));
        written.map_err(|error| self.error(&error))
    }

    fn write_error(&self, error: WriteError) -> SandboxError {
        match error {
            WriteError::Path(error) => self.error(&error.source),
            error => unusable(&self.given, &error.to_string()),
        }
    }

    /// Opens a regular file. Reading a pipe or a device could block forever.
    fn open(&self, real: &Path, flags: OFlags) -> Result<(File, Metadata), SandboxError> {
        let file = PathPolicy::open(&self.private, real, flags | OFlags::NONBLOCK);
        let file = file.map_err(|error| self.error(&error))?;
        let metadata = file.metadata().map_err(|error| self.error(&error))?;
        match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => Ok((file, metadata)),
            (_, true) => Err(unusable(&self.given, "is a directory")),
            _ => Err(unusable(&self.given, "not a regular file")),
        }
    }

    /// Sets whether the file may be executed, by everyone who may read it.
    pub(super) fn set_executable(&self, executable: bool) -> Result<(), SandboxError> {
        let (file, metadata) = self.open(&self.real()?, OFlags::RDONLY)?;
        let mode = metadata.mode() & 0o7777;
        let execute = (mode & 0o444) >> 2;
        let mode = if executable {
            mode | execute
        } else {
            mode & !0o111
        };
        let set = file.set_permissions(Permissions::from_mode(mode));
        set.map_err(|error| self.error(&error))
    }

    pub(super) fn info(&self) -> Result<FileInfo, SandboxError> {
        // A dangling link exists too.
        let metadata = match self.real() {
            Ok(real) => fs::metadata(real).or_else(|_| fs::symlink_metadata(&self.path)),
            Err(private @ SandboxError::Private(_)) => return Err(private),
            Err(_) => fs::symlink_metadata(&self.path),
        };
        let metadata = metadata.map_err(|error| self.error(&error))?;
        let is_dir = metadata.is_dir();
        let is_name = |part: &&str| !matches!(*part, "" | ".");
        let names: Vec<_> = self.given.split('/').filter(is_name).collect();
        let start = if self.given.starts_with('/') { "/" } else { "" };
        Ok(FileInfo {
            path: format!("{start}{}", names.join("/")),
            is_dir,
            size: if is_dir { 0 } else { metadata.len() },
            modified: modified(&metadata),
            changed: changed(&metadata),
            executable: is_executable(&metadata),
        })
    }

    pub(super) fn list(&self) -> Result<Vec<FileInfo>, SandboxError> {
        let real = self.real()?;
        let files = fs::read_dir(&real).map_err(|error| self.error(&error))?;
        let mut all = Vec::new();
        for file in files {
            let file = file.map_err(|error| self.error(&error))?;
            let name = file.file_name().to_string_lossy().into_owned();
            let given = match self.given.as_str() {
                "" => name,
                parent => format!("{}/{name}", parent.trim_end_matches('/')),
            };
            let (path, private) = (file.path(), Arc::clone(&self.private));
            let entry = Self {
                given,
                path,
                private,
            };
            // Skip entries that were removed meanwhile or are private.
            all.extend(entry.info().ok());
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    pub(super) fn remove(&self, workspace: &Path) -> Result<(), SandboxError> {
        let real = self.real()?;
        let metadata = fs::symlink_metadata(&self.path).map_err(|error| self.error(&error))?;
        if self.private.is_within(&real) {
            return Err(SandboxError::Private(self.given.clone()));
        }
        let removed = if metadata.is_dir() {
            if workspace.starts_with(real) {
                return Err(unusable("the workspace", "cannot be removed"));
            }
            fs::remove_dir_all(&self.path)
        } else {
            fs::remove_file(&self.path)
        };
        removed.map_err(|error| self.error(&error))
    }

    /// Removes an empty directory.
    pub(super) fn remove_empty(&self, workspace: &Path) -> Result<(), SandboxError> {
        let real = self.real()?;
        if self.private.is_within(&real) {
            return Err(SandboxError::Private(self.given.clone()));
        }
        if workspace.starts_with(real) {
            return Err(unusable("the workspace", "cannot be removed"));
        }
        fs::remove_dir(&self.path).map_err(|error| self.error(&error))
    }

    pub(super) fn error(&self, error: &io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::NotFound => SandboxError::NotFound(self.given.clone()),
            io::ErrorKind::IsADirectory => unusable(&self.given, "is a directory"),
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                unusable(&self.given, "not a directory, or inside a file")
            }
            _ => unusable(&self.given, &error.to_string()),
        }
    }
}

/// Removes `.` and `..` from a path without resolving links.
pub(super) fn normalize(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                all.pop();
            }
            Component::CurDir => {}
            part => all.push(part),
        }
    }
    all
}

/// Time of the last change of content or metadata, in nanoseconds since 1970.
pub(super) fn changed(metadata: &Metadata) -> u64 {
    const NANOS: u64 = 1_000_000_000;
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanos = u64::try_from(metadata.ctime_nsec()).unwrap_or_default();
    seconds.saturating_mul(NANOS).saturating_add(nanos)
}

/// Whether the owner may execute a file.
pub(super) fn is_executable(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.mode() & OWNER_EXECUTES != 0
}

/// Modification time in nanoseconds since 1970.
pub(super) fn modified(metadata: &Metadata) -> u64 {
    let since = metadata.modified().ok();
    let since = since.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))
}
