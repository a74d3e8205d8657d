//! Atomic, durable file writes and directory creation.
//!
//! A file is written under a temporary name in its directory, flushed to disk and renamed, and
//! then the directory is flushed. A reader sees the old content or the new content, never a
//! part, and a write that was reported as successful survives a power failure.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::error::{PathContext, PathError};
use crate::text::shell_word;

/// What to do if the file already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Return an error and leave the file unchanged.
    Fail,
    /// Replace the file.
    Replace,
}

/// Error of writing a file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file exists and [`IfExists::Fail`] was requested.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The path is a directory, a device or a symbolic link, which are never replaced.
    #[error("{} is not a regular file and is not replaced", .0.display())]
    NotAFile(PathBuf),
    /// The operating system returned an error.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// Error of [`create_dir_within`].
#[derive(Debug, thiserror::Error)]
pub enum CreateDirError {
    /// A part of the path is a symbolic link whose target is not a directory below the root.
    #[error("{} is a link to something that is not a directory in {}", link.display(), root.display())]
    LinkLeavesRoot {
        /// The link.
        link: PathBuf,
        /// The directory that the path must stay in.
        root: PathBuf,
    },
    /// The operating system returned an error.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl CreateDirError {
    /// The command that removes the link.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::LinkLeavesRoot { link, .. } => Some(format!("rm {}", shell_word(link))),
            Self::Path(_) => None,
        }
    }
}

/// Writes a file atomically and durably. The umask applies to `mode`.
pub fn write(path: &Path, bytes: &[u8], mode: u32, existing: IfExists) -> Result<(), WriteError> {
    StagedFile::new(path, bytes, mode)?.publish(existing)?;
    Ok(sync_dir(parent_dir(path))?)
}

/// Replaces the content of an existing file and keeps its mode and, if permitted, its owner.
pub fn rewrite(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    check_replaceable(path)?;
    let metadata = fs::metadata(path).at("read the metadata of", path)?;
    let staged = StagedFile::new(path, bytes, 0o600)?;
    let file = staged.temporary.as_file();
    // The owner first: changing it clears the set-user-id bits.
    let _ = fchown(file, Some(metadata.uid()), Some(metadata.gid()));
    file.set_permissions(metadata.permissions())
        .at("set the mode of", path)?;
    staged.publish(IfExists::Replace)?;
    Ok(sync_dir(parent_dir(path))?)
}

/// A file that is written in pieces and appears under its name when it is
/// [published](AtomicFile::publish). If dropped before, it is removed.
pub struct AtomicFile<'a>(StagedFile<'a>);

impl<'a> AtomicFile<'a> {
    /// Creates a temporary file beside `path`. The umask applies to `mode`.
    pub fn new(path: &'a Path, mode: u32) -> Result<Self, PathError> {
        StagedFile::empty(path, mode).map(Self)
    }

    /// Flushes the file to disk and renames it to its path, durably.
    pub fn publish(self, existing: IfExists) -> Result<(), WriteError> {
        let path = self.0.path;
        self.0.flush_to_disk()?.publish(existing)?;
        Ok(sync_dir(parent_dir(path))?)
    }
}

impl Write for AtomicFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.temporary.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.temporary.as_file_mut().flush()
    }
}

/// A file that is written and flushed under a temporary name. If dropped, it is removed.
pub(crate) struct StagedFile<'a> {
    temporary: NamedTempFile,
    path: &'a Path,
}

impl<'a> StagedFile<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &[u8], mode: u32) -> Result<Self, PathError> {
        let mut staged = Self::empty(path, mode)?;
        let file = staged.temporary.as_file_mut();
        file.write_all(bytes).at("write", path)?;
        staged.flush_to_disk()
    }

    /// The file is created with `mode` (less the umask), so it is never more accessible.
    fn empty(path: &'a Path, mode: u32) -> Result<Self, PathError> {
        // `tempfile` adds the temporary name to its errors. Report the operating system's
        // error with the final name instead.
        let mut os_error = None;
        let temporary = tempfile::Builder::new()
            .prefix(".tmp-")
            .make_in(parent_dir(path), |name| {
                let mut options = OpenOptions::new();
                let opened = options.write(true).create_new(true).mode(mode).open(name);
                opened.inspect_err(|e| os_error = e.raw_os_error())
            })
            .map_err(|e| os_error.map_or(e, io::Error::from_raw_os_error))
            .at("write", path)?;
        Ok(Self { temporary, path })
    }

    fn flush_to_disk(self) -> Result<Self, PathError> {
        self.temporary.as_file().sync_all().at("flush", self.path)?;
        Ok(self)
    }

    /// Renames the file to its path. The caller flushes the directory with [`sync_dir`].
    pub(crate) fn publish(self, existing: IfExists) -> Result<(), WriteError> {
        let path = self.path;
        let outcome = match existing {
            IfExists::Fail => self.temporary.persist_noclobber(path),
            IfExists::Replace => {
                check_replaceable(path)?;
                self.temporary.persist(path)
            }
        };
        outcome
            .map(drop)
            .map_err(|failed| match failed.error.kind() {
                io::ErrorKind::AlreadyExists => WriteError::Exists(path.to_owned()),
                _ => WriteError::Path(PathError {
                    action: "write",
                    path: path.to_owned(),
                    source: failed.error,
                }),
            })
    }
}

/// Flushes a directory to disk, so that renames and new entries in it survive a power
/// failure.
pub fn sync_dir(dir: &Path) -> Result<(), PathError> {
    let opened = File::open(dir).at("open the directory", dir)?;
    opened.sync_all().at("flush the directory", dir)
}

/// Creates a directory and its missing parents, durably. The directory itself gets `mode`, new
/// parents get 0777 less the umask, and existing directories keep their mode.
pub fn create_dir(dir: &Path, mode: u32) -> Result<(), PathError> {
    let missing: Vec<_> = dir
        .ancestors()
        .take_while(|part| !part.as_os_str().is_empty() && !part.exists())
        .collect();
    for part in missing.into_iter().rev() {
        let mut builder = DirBuilder::new();
        if part == dir {
            builder.mode(mode);
        }
        match builder.create(part) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => outcome.at("create the directory", part)?,
        }
        sync_dir(parent_dir(part))?;
    }
    Ok(())
}

/// Like [`create_dir`], but fails if a symbolic link on the way leads out of `root`.
pub fn create_dir_within(
    root: &Path,
    relative: impl AsRef<Path>,
    mode: u32,
) -> Result<(), CreateDirError> {
    let relative = relative.as_ref();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let top = open(root, flags, Mode::empty()).at("open the directory", root)?;
    let mut parent = top.try_clone().at("open the directory", root)?;
    let mut parts: Vec<_> = relative.ancestors().collect();
    parts.retain(|part| !part.as_os_str().is_empty());
    for part in parts.into_iter().rev() {
        let path = root.join(part);
        let open_part = || openat2(&top, part, flags, Mode::empty(), resolve);
        let opened = open_part().or_else(|error| match (error, part.file_name()) {
            (Errno::NOENT, Some(name)) => {
                let mode = if part == relative { mode } else { 0o777 };
                match mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
                    Ok(()) => rustix::fs::fsync(&parent)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                open_part()
            }
            _ => Err(error),
        });
        parent = match opened {
            Ok(dir) => dir,
            Err(_) if path.is_symlink() => {
                let root = root.to_owned();
                return Err(CreateDirError::LinkLeavesRoot { link: path, root });
            }
            Err(error) => return Err(error).at("use the directory", &path)?,
        };
    }
    Ok(())
}

fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fails if the path exists and is not a regular file: a rename would replace a device or a
/// link instead of writing to it.
pub(crate) fn check_replaceable(path: &Path) -> Result<(), WriteError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(WriteError::NotAFile(path.to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn existing_file_is_replaced_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, b"one", 0o600, IfExists::Fail).unwrap();
        let refused = write(&path, b"two", 0o600, IfExists::Fail).unwrap_err();
        assert!(matches!(refused, WriteError::Exists(p) if p == path));
        assert_eq!(fs::read(&path).unwrap(), b"one");

        write(&path, b"two", 0o600, IfExists::Replace).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
    }

    #[test]
    fn atomic_file_appears_only_when_published() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for is_published in [false, true] {
            let mut draft = AtomicFile::new(&path, 0o600).unwrap();
            draft.write_all(b"one ").unwrap();
            draft.write_all(b"two").unwrap();
            assert!(!path.exists());
            if is_published {
                draft.publish(IfExists::Fail).unwrap();
            }
        }
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
    }

    #[test]
    fn links_and_directories_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (link, subdir) = (dir.path().join("link"), dir.path().join("subdir"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        fs::create_dir(&subdir).unwrap();
        for special in [link, subdir] {
            let refused = write(&special, b"x", 0o600, IfExists::Replace).unwrap_err();
            assert!(matches!(refused, WriteError::NotAFile(p) if p == special));
        }
    }

    #[test]
    fn rewritten_file_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        rewrite(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o775);
        let missing = dir.path().join("missing");
        assert!(rewrite(&missing, b"").is_err() && !missing.exists());
    }

    #[test]
    fn only_the_innermost_new_directory_gets_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        create_dir(&inner, 0o700).unwrap();
        create_dir(&inner, 0o755).unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&inner), 0o700);
        assert_ne!(mode(&dir.path().join("a")) & 0o050, 0);
    }

    #[test]
    fn directory_is_not_created_through_a_link_out_of_the_root() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("inside")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink("inside", root.join("stays")).unwrap();
        symlink(&outside, root.join("leaves")).unwrap();
        symlink("../outside", root.join("inside/up")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink("/proc/self/cwd", root.join("magic")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        for path in ["a/b/c", "inside/new", "stays/too", "a"] {
            create_dir_within(&root, path, 0o700).unwrap();
            assert!(root.join(path).is_dir(), "{path}");
        }
        for (path, link) in [
            ("leaves", "leaves"),
            ("leaves/x", "leaves"),
            ("stays/up/x", "stays/up"),
            ("dangling", "dangling"),
            ("dangling/x", "dangling"),
            ("magic/x", "magic"),
        ] {
            match create_dir_within(&root, path, 0o700) {
                Err(CreateDirError::LinkLeavesRoot { link: found, .. }) => {
                    assert_eq!(found, root.join(link), "{path}");
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let file = create_dir_within(&root, "file/x", 0o700);
        assert!(matches!(file, Err(CreateDirError::Path(_))), "{file:?}");
    }

    #[test]
    fn error_names_the_final_path_not_the_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/f");
        let text = write(&path, b"", 0o600, IfExists::Replace)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            format!(
                "cannot write {}: No such file or directory (os error 2)",
                path.display()
            )
        );
    }
}
