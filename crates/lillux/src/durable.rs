//! Files that are there whole or not at all, also after a power cut.
//!
//! A file is written under a temporary name in its own folder, flushed to the
//! disk, renamed into place, and the folder flushed: a reader sees the old file
//! or the new one, and what was reported as written stays written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::error::{At, PathError};
use crate::text::shell_word;

/// What to do where a file already stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it and fail.
    Refuse,
    /// Put the new file in its place.
    Replace,
}

/// A file that could not be put in its place.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is one already and it was not to be replaced.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// A folder, a device, a link: replacing it would destroy more than a file.
    #[error("{} is not a regular file and is not replaced", .0.display())]
    NotAFile(PathBuf),
    /// The operating system refused.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A folder that cannot be used below the folder that it must stay in.
#[derive(Debug, thiserror::Error)]
pub enum BeneathError {
    /// A link is in the place of a file, or leads to no folder in there.
    #[error("{} is a link that leads out of {}, or to what is no folder", link.display(), root.display())]
    Leaves {
        /// The link.
        link: PathBuf,
        /// What it must stay in.
        root: PathBuf,
    },
    /// The operating system refused.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl BeneathError {
    /// The command that removes the link.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Leaves { link, .. } => Some(format!("rm {}", shell_word(link))),
            Self::Path(_) => None,
        }
    }
}

/// Writes one file. Its mode is `mode` less the umask.
pub fn write(path: &Path, bytes: &[u8], mode: u32, existing: Existing) -> Result<(), WriteError> {
    Staged::new(path, bytes, mode)?.publish(existing)?;
    Ok(sync_folder(folder_of(path))?)
}

/// Puts new bytes in the place of a file that is there, keeping its mode and, where
/// that is allowed, its owner.
pub fn rewrite(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    refuse_special(path)?;
    let there = fs::metadata(path).at("look at", path)?;
    let staged = Staged::new(path, bytes, 0o600)?;
    let file = staged.temporary.as_file();
    // The owner first: the kernel takes set-user-id bits away when it changes.
    let _ = fchown(file, Some(there.uid()), Some(there.gid()));
    file.set_permissions(there.permissions())
        .at("set the mode of", path)?;
    staged.publish(Existing::Replace)?;
    Ok(sync_folder(folder_of(path))?)
}

/// A file in the making, for what is too long to be in memory at once. Dropped before it is
/// [published](Draft::publish), it is gone.
pub struct Draft<'a>(Staged<'a>);

impl<'a> Draft<'a> {
    /// One that is to have this name and `mode`, less the umask.
    pub fn new(path: &'a Path, mode: u32) -> Result<Self, PathError> {
        Staged::empty(path, mode).map(Self)
    }

    /// Gives it its name. When this returns it is on the disk.
    pub fn publish(self, existing: Existing) -> Result<(), WriteError> {
        let path = self.0.path;
        self.0.flushed()?.publish(existing)?;
        Ok(sync_folder(folder_of(path))?)
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.temporary.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.temporary.as_file_mut().flush()
    }
}

/// A file that is written and flushed, but has not its name yet. Dropped, it is gone.
pub(crate) struct Staged<'a> {
    temporary: NamedTempFile,
    path: &'a Path,
}

impl<'a> Staged<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &[u8], mode: u32) -> Result<Self, PathError> {
        let mut staged = Self::empty(path, mode)?;
        let file = staged.temporary.as_file_mut();
        file.write_all(bytes).at("write", path)?;
        staged.flushed()
    }

    /// The file's mode is `mode` less the umask, from its first moment on.
    fn empty(path: &'a Path, mode: u32) -> Result<Self, PathError> {
        // `tempfile` adds the temporary name to an error, which is nothing to the
        // reader of the message; the operating system's own is kept aside.
        let mut refusal = None;
        let temporary = tempfile::Builder::new()
            .prefix(".tmp-")
            .make_in(folder_of(path), |name| {
                let mut options = OpenOptions::new();
                let opened = options.write(true).create_new(true).mode(mode).open(name);
                opened.inspect_err(|e| refusal = e.raw_os_error())
            })
            .map_err(|e| refusal.map_or(e, io::Error::from_raw_os_error))
            .at("write", path)?;
        Ok(Self { temporary, path })
    }

    fn flushed(self) -> Result<Self, PathError> {
        self.temporary.as_file().sync_all().at("flush", self.path)?;
        Ok(self)
    }

    /// Gives the file its name. The folder is not flushed yet: [`sync_folder`].
    pub(crate) fn publish(self, existing: Existing) -> Result<(), WriteError> {
        let path = self.path;
        let outcome = match existing {
            Existing::Refuse => self.temporary.persist_noclobber(path),
            Existing::Replace => {
                refuse_special(path)?;
                self.temporary.persist(path)
            }
        };
        outcome
            .map(drop)
            .map_err(|refused| match refused.error.kind() {
                io::ErrorKind::AlreadyExists => WriteError::Exists(path.to_owned()),
                _ => WriteError::Path(PathError {
                    action: "write",
                    path: path.to_owned(),
                    source: refused.error,
                }),
            })
    }
}

/// Makes the renames inside a folder survive a power cut.
pub fn sync_folder(folder: &Path) -> Result<(), PathError> {
    let opened = File::open(folder).at("open the folder", folder)?;
    opened.sync_all().at("flush the folder", folder)
}

/// Makes a folder and what is missing above it, durably. The folder itself gets
/// `mode`, those above what the umask leaves; one that exists keeps its mode.
pub fn create_folder(folder: &Path, mode: u32) -> Result<(), PathError> {
    let missing: Vec<_> = folder
        .ancestors()
        .take_while(|part| !part.as_os_str().is_empty() && !part.exists())
        .collect();
    for part in missing.into_iter().rev() {
        let mut builder = DirBuilder::new();
        if part == folder {
            builder.mode(mode);
        }
        match builder.create(part) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => outcome.at("create the folder", part)?,
        }
        sync_folder(folder_of(part))?;
    }
    Ok(())
}

/// Makes a folder below another, like [`create_folder`], by no link that leads out of that.
pub fn create_folder_beneath(
    root: &Path,
    relative: impl AsRef<Path>,
    mode: u32,
) -> Result<(), BeneathError> {
    let relative = relative.as_ref();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let top = open(root, flags, Mode::empty()).at("open the folder", root)?;
    let mut above = top.try_clone().at("open the folder", root)?;
    let mut parts: Vec<_> = relative.ancestors().collect();
    parts.retain(|part| !part.as_os_str().is_empty());
    for part in parts.into_iter().rev() {
        let path = root.join(part);
        let open_part = || openat2(&top, part, flags, Mode::empty(), resolve);
        let opened = open_part().or_else(|error| match (error, part.file_name()) {
            (Errno::NOENT, Some(name)) => {
                let mode = if part == relative { mode } else { 0o777 };
                match mkdirat(&above, name, Mode::from_raw_mode(mode)) {
                    Ok(()) => rustix::fs::fsync(&above)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                open_part()
            }
            _ => Err(error),
        });
        above = match opened {
            Ok(folder) => folder,
            Err(_) if path.is_symlink() => {
                let root = root.to_owned();
                return Err(BeneathError::Leaves { link: path, root });
            }
            Err(error) => return Err(error).at("use the folder", &path)?,
        };
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A rename over `/dev/null` or over a link would not write to what it stands for.
fn refuse_special(path: &Path) -> Result<(), WriteError> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => Err(WriteError::NotAFile(path.to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_existing_file_is_replaced_only_when_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, b"one", 0o600, Existing::Refuse).unwrap();
        let refused = write(&path, b"two", 0o600, Existing::Refuse).unwrap_err();
        assert!(matches!(refused, WriteError::Exists(p) if p == path));
        assert_eq!(fs::read(&path).unwrap(), b"one");

        write(&path, b"two", 0o600, Existing::Replace).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
    }

    #[test]
    fn what_is_written_in_pieces_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for ends in [false, true] {
            let mut draft = Draft::new(&path, 0o600).unwrap();
            draft.write_all(b"one ").unwrap();
            draft.write_all(b"two").unwrap();
            assert!(!path.exists());
            if ends {
                draft.publish(Existing::Refuse).unwrap();
            }
        }
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
    }

    #[test]
    fn links_and_folders_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (link, folder) = (dir.path().join("link"), dir.path().join("folder"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        fs::create_dir(&folder).unwrap();
        for special in [link, folder] {
            let refused = write(&special, b"x", 0o600, Existing::Replace).unwrap_err();
            assert!(matches!(refused, WriteError::NotAFile(p) if p == special));
        }
    }

    #[test]
    fn a_rewritten_file_keeps_its_mode() {
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
    fn only_the_innermost_of_the_folders_made_gets_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        create_folder(&inner, 0o700).unwrap();
        create_folder(&inner, 0o755).unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&inner), 0o700);
        assert_ne!(mode(&dir.path().join("a")) & 0o050, 0);
    }

    #[test]
    fn a_folder_beneath_another_is_made_by_no_link_that_leads_out() {
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
            create_folder_beneath(&root, path, 0o700).unwrap();
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
            match create_folder_beneath(&root, path, 0o700) {
                Err(BeneathError::Leaves { link: found, .. }) => {
                    assert_eq!(found, root.join(link), "{path}");
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let file = create_folder_beneath(&root, "file/x", 0o700);
        assert!(matches!(file, Err(BeneathError::Path(_))), "{file:?}");
    }

    #[test]
    fn an_error_names_the_file_asked_for_and_not_the_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/f");
        let text = write(&path, b"", 0o600, Existing::Replace)
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
