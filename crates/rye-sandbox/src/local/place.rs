//! A path of this machine, and what is done there.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lillux::durable::{self, IfExists, WriteError};
use lillux::path_policy::{PathPolicy, PrivateDirs, resolve};
use rustix::fs::OFlags;
use rye_engine::sandbox::{FileInfo, SandboxError};

use crate::files::unusable;

/// The longest file that is read.
pub(super) const LONGEST: u64 = 64 * 1024 * 1024;

/// A path, and as it was called.
pub(super) struct Place {
    pub(super) shown: String,
    pub(super) path: PathBuf,
    pub(super) private: Arc<PrivateDirs>,
}

impl Place {
    pub(super) fn read(&self, longest: u64) -> Result<Vec<u8>, SandboxError> {
        let (file, about) = self.open(&self.real()?, OFlags::RDONLY)?;
        let room = about.len().min(longest).saturating_add(1);
        let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or_default());
        file.take(longest.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| self.wrong(&error))?;
        if bytes.len() as u64 > longest {
            let why = format!("too large to read at once: {} bytes", about.len());
            return Err(unusable(&self.shown, &why));
        }
        Ok(bytes)
    }

    /// The path without links, if it is not private.
    pub(super) fn real(&self) -> Result<PathBuf, SandboxError> {
        let real = resolve(&self.path);
        let real = real.ok_or_else(|| unusable(&self.shown, "its links form a loop"))?;
        if self.private.contains(&real) {
            return Err(SandboxError::Private(self.shown.clone()));
        }
        Ok(real)
    }

    /// Writes the file, so that it is there whole, old or new, whatever happens meanwhile.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), SandboxError> {
        self.write_at(&self.real()?, bytes)
    }

    /// The same at a path without links, which is this one's.
    pub(super) fn write_at(&self, real: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        if self.private.contains(real) {
            return Err(SandboxError::Private(self.shown.clone()));
        }
        let (Some(above), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(unusable(&self.shown, "it is a folder"));
        };
        // From here on the file is reached through this very folder.
        let folder = PathPolicy::create_dir(above).map_err(|error| self.wrong(&error))?;
        let path = folder.join(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let written = durable::write(&path, bytes, 0o666, IfExists::Replace);
                written.map_err(|error| self.not_written(error))
            }
            _ => self.overwrite(real, &path, bytes),
        }
    }

    /// A file that has other names, or is in a folder that takes no new ones, is written
    /// where it is.
    fn overwrite(&self, real: &Path, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        // Whoever may not write to it may not replace it, either.
        let (mut file, about) = self.open(real, OFlags::WRONLY)?;
        if about.nlink() == 1 {
            match durable::rewrite(path, bytes) {
                Ok(()) => return Ok(()),
                Err(WriteError::Path(error)) if error.is_permission() => {}
                Err(error) => return Err(self.not_written(error)),
            }
        }
        let written = file.set_len(0).and_then(|()| file.write_all(bytes));
        written.map_err(|error| self.wrong(&error))
    }

    fn not_written(&self, error: WriteError) -> SandboxError {
        match error {
            WriteError::Path(error) => self.wrong(&error.source),
            error => unusable(&self.shown, &error.to_string()),
        }
    }

    /// Opens a regular file: a pipe or a device could keep one waiting for ever.
    fn open(&self, real: &Path, flags: OFlags) -> Result<(File, Metadata), SandboxError> {
        let file = PathPolicy::open(&self.private, real, flags | OFlags::NONBLOCK);
        let file = file.map_err(|error| self.wrong(&error))?;
        let about = file.metadata().map_err(|error| self.wrong(&error))?;
        match (about.is_file(), about.is_dir()) {
            (true, _) => Ok((file, about)),
            (_, true) => Err(unusable(&self.shown, "is a directory")),
            _ => Err(unusable(&self.shown, "it is not a file")),
        }
    }

    pub(super) fn info(&self) -> Result<FileInfo, SandboxError> {
        // A link that leads nowhere is there all the same.
        let about = match self.real() {
            Ok(real) => fs::metadata(real).or_else(|_| fs::symlink_metadata(&self.path)),
            Err(private @ SandboxError::Private(_)) => return Err(private),
            Err(_) => fs::symlink_metadata(&self.path),
        };
        let about = about.map_err(|error| self.wrong(&error))?;
        let is_dir = about.is_dir();
        let detours = |path: &&str| !matches!(*path, "" | ".");
        let names: Vec<_> = self.shown.split('/').filter(detours).collect();
        let start = if self.shown.starts_with('/') { "/" } else { "" };
        Ok(FileInfo {
            path: format!("{start}{}", names.join("/")),
            is_dir,
            size: if is_dir { 0 } else { about.len() },
            modified: modified(&about),
        })
    }

    pub(super) fn list(&self) -> Result<Vec<FileInfo>, SandboxError> {
        let real = self.real()?;
        let files = fs::read_dir(&real).map_err(|error| self.wrong(&error))?;
        let mut all = Vec::new();
        for file in files {
            let file = file.map_err(|error| self.wrong(&error))?;
            let name = file.file_name().to_string_lossy().into_owned();
            let shown = match self.shown.as_str() {
                "" => name,
                above => format!("{}/{name}", above.trim_end_matches('/')),
            };
            let (path, private) = (file.path(), Arc::clone(&self.private));
            let entry = Self {
                shown,
                path,
                private,
            };
            // One that is gone meanwhile, or is private, is not there.
            all.extend(entry.info().ok());
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    pub(super) fn remove(&self, workspace: &Path) -> Result<(), SandboxError> {
        let real = self.real()?;
        let about = fs::symlink_metadata(&self.path).map_err(|error| self.wrong(&error))?;
        if self.private.is_within(&real) {
            return Err(SandboxError::Private(self.shown.clone()));
        }
        let removed = if about.is_dir() {
            if workspace.starts_with(real) {
                return Err(unusable("the workspace", "it is not removed"));
            }
            fs::remove_dir_all(&self.path)
        } else {
            fs::remove_file(&self.path)
        };
        removed.map_err(|error| self.wrong(&error))
    }

    pub(super) fn wrong(&self, error: &io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::NotFound => SandboxError::NotFound(self.shown.clone()),
            io::ErrorKind::IsADirectory => unusable(&self.shown, "is a directory"),
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                unusable(&self.shown, "it is not a folder, or is in what is none")
            }
            _ => unusable(&self.shown, &error.to_string()),
        }
    }
}

/// Where a path would lead if nothing on it were a link.
pub(super) fn without_links(path: &Path) -> PathBuf {
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

/// When a file last changed, in nanoseconds.
pub(super) fn modified(about: &Metadata) -> u64 {
    let since = about.modified().ok();
    let since = since.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))
}
