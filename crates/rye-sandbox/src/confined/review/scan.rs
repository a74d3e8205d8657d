//! Finds what a session changed: compares the upper directory of the overlay with the workspace.
//!
//! Only changed paths are visited. A removed path is a character device with the number 0 (a
//! *whiteout*); a directory that replaces another one is marked with an extended attribute.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use lillux::Hash;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rye_engine::protocol::{Change, ChangeSet, FileKind, FileVersion, escape_path};

use crate::confined::policy::ConfinementPolicy;

const WHITEOUT: &str = "user.overlay.whiteout";
const OPAQUE: &str = "user.overlay.opaque";
const ORIGIN: &str = "user.overlay.origin";
/// Stands for the hash of a file that its owner cannot read.
const UNREADABLE: &str = "unreadable";
/// Set only by features that the sandbox doesn't use.
const REDIRECT: &str = "user.overlay.redirect";

/// Compares the session's changes with the workspace.
pub(super) struct Scan<'a> {
    pub(super) upper: &'a Path,
    pub(super) workspace: &'a Path,
    pub(super) policy: &'a ConfinementPolicy,
    /// Seconds and nanoseconds of the time when the session started from the workspace.
    pub(super) since: (i64, i64),
}

/// What a path of the workspace is for a directory of the session above it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    /// The directory is the same in the workspace.
    Same,
    /// The workspace has no such directory.
    Nothing,
}

impl Scan<'_> {
    pub(super) fn run(&self) -> io::Result<ChangeSet> {
        let mut set = ChangeSet::default();
        self.dir(Path::new(""), Below::Same, &mut set)?;
        set.changes.sort_by(|a, b| a.path.cmp(&b.path));
        set.omitted.sort();
        Ok(set)
    }

    fn dir(&self, dir: &Path, below: Below, set: &mut ChangeSet) -> io::Result<()> {
        let here = self.upper.join(dir);
        if has_attribute(&here, REDIRECT) {
            return Err(io::Error::other(format!("{} was renamed", dir.display())));
        }
        let mut names: Vec<_> = with_permission(&here, 0o700, || {
            fs::read_dir(&here)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<Vec<_>>>()
        })?;
        names.sort();
        if below == Below::Same && has_attribute(&here, OPAQUE) {
            for name in self.names_in_workspace(dir)? {
                if names.binary_search(&name).is_err() {
                    self.removed(&dir.join(name), set)?;
                }
            }
        }
        for name in names {
            self.entry(&dir.join(name), below, set)?;
        }
        Ok(())
    }

    fn entry(&self, path: &Path, below: Below, set: &mut ChangeSet) -> io::Result<()> {
        let file = self.upper.join(path);
        let metadata = fs::symlink_metadata(&file)?;
        let lower = match below {
            Below::Same => existing(&self.workspace.join(path))?,
            Below::Nothing => None,
        };
        if is_whiteout(&file, &metadata) {
            return match lower {
                Some(_) => self.removed(path, set),
                None => Ok(()),
            };
        }
        let lower_is_dir = lower.as_ref().is_some_and(Metadata::is_dir);
        let kind = metadata.file_type();
        if kind.is_dir() {
            return self.directory(path, &metadata, lower.as_ref(), set);
        }
        let special = match kind {
            it if it.is_socket() => Some("socket"),
            it if it.is_fifo() => Some("pipe"),
            it if it.is_char_device() || it.is_block_device() => Some("device"),
            _ => None,
        };
        if let Some(what) = special {
            set.omitted.push(format!("{what} {}", escaped(path)));
            return Ok(());
        }
        if lower_is_dir {
            self.removed_below(path, set)?;
        }
        let new = with_permission(&file, 0o600, || own_version(&file, &metadata))?;
        if metadata.mode() & 0o6000 != 0 && kind.is_file() {
            let text = format!("setuid and setgid bits of {}", escaped(path));
            set.omitted.push(text);
        }
        let old = match &lower {
            Some(lower) => Some(version(&self.workspace.join(path), lower)?),
            None => None,
        };
        if old.as_ref() == Some(&new) {
            return Ok(());
        }
        // It replaces a file that the workspace no longer has.
        let lost = lower.is_none() && has_attribute(&file, ORIGIN);
        let conflict = lost || lower.as_ref().is_some_and(|it| self.is_newer(it));
        self.push(path, old, Some(new), conflict, set);
        Ok(())
    }

    fn directory(
        &self,
        path: &Path,
        metadata: &Metadata,
        lower: Option<&Metadata>,
        set: &mut ChangeSet,
    ) -> io::Result<()> {
        let new = version(&self.upper.join(path), metadata)?;
        let Some(lower) = lower else {
            let before = set.changes.len();
            self.dir(path, Below::Nothing, set)?;
            // A directory with files in it is created for them.
            if set.changes.len() == before {
                self.push(path, None, Some(new), false, set);
            }
            return Ok(());
        };
        let old = version(&self.workspace.join(path), lower)?;
        if lower.is_dir() {
            if old != new {
                self.push(path, Some(old), Some(new), false, set);
            }
            return self.dir(path, Below::Same, set);
        }
        let conflict = self.is_newer(lower);
        self.push(path, Some(old), Some(new), conflict, set);
        self.dir(path, Below::Nothing, set)
    }

    /// Adds a removed path, with everything below it.
    fn removed(&self, path: &Path, set: &mut ChangeSet) -> io::Result<()> {
        let file = self.workspace.join(path);
        let Some(metadata) = existing(&file)? else {
            return Ok(());
        };
        if metadata.is_dir() {
            self.removed_below(path, set)?;
        }
        let old = version(&file, &metadata)?;
        let conflict = !metadata.is_dir() && self.is_newer(&metadata);
        self.push(path, Some(old), None, conflict, set);
        Ok(())
    }

    fn removed_below(&self, dir: &Path, set: &mut ChangeSet) -> io::Result<()> {
        for name in self.names_in_workspace(dir)? {
            self.removed(&dir.join(name), set)?;
        }
        Ok(())
    }

    fn names_in_workspace(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(self.workspace.join(dir))?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn push(
        &self,
        path: &Path,
        old: Option<FileVersion>,
        new: Option<FileVersion>,
        conflict: bool,
        set: &mut ChangeSet,
    ) {
        set.changes.push(Change {
            path: escaped(path),
            old,
            new,
            conflict,
            protected: path.iter().any(|name| self.policy.protects(name)),
        });
    }

    /// Whether a file of the workspace was changed after the session started from it.
    fn is_newer(&self, metadata: &Metadata) -> bool {
        (metadata.ctime(), metadata.ctime_nsec()) > self.since
    }
}

fn escaped(path: &Path) -> String {
    escape_path(path.as_os_str().as_bytes())
}

fn existing(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

fn is_whiteout(file: &Path, metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    (kind.is_char_device() && metadata.rdev() == 0)
        || (kind.is_file() && metadata.len() == 0 && has_attribute(file, WHITEOUT))
}

fn has_attribute(path: &Path, name: &str) -> bool {
    let mut value = [0; 1];
    match rustix::fs::lgetxattr(path, name, &mut value) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    }
}

/// The version of a path, as change sets describe it.
pub(super) fn version(path: &Path, metadata: &Metadata) -> io::Result<FileVersion> {
    let kind = metadata.file_type();
    let mut version = FileVersion {
        kind: FileKind::Special,
        mode: metadata.mode() & 0o777,
        hash: String::new(),
        size: 0,
        target: None,
    };
    if kind.is_dir() {
        version.kind = FileKind::Directory;
    } else if kind.is_symlink() {
        let target = fs::read_link(path)?;
        version.kind = FileKind::Link;
        version.hash = Hash::digest(target.as_os_str().as_bytes()).to_hex();
        version.target = Some(escape_path(target.as_os_str().as_bytes()));
    } else if kind.is_file() {
        version.kind = FileKind::File;
        version.size = metadata.len();
        match open_file(path).and_then(Hash::digest_reader) {
            Ok((hash, size)) => (version.hash, version.size) = (hash.to_hex(), size),
            // It can be removed all the same.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                UNREADABLE.clone_into(&mut version.hash);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(version)
}

/// The version of a file of the session, which must be readable.
fn own_version(path: &Path, metadata: &Metadata) -> io::Result<FileVersion> {
    match version(path, metadata)? {
        it if it.hash == UNREADABLE => Err(io::ErrorKind::PermissionDenied.into()),
        it => Ok(it),
    }
}

/// Opens a file without following a link.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

/// Gives the owner permissions on a path for the time of an operation that needs them.
pub(super) fn with_permission<T>(
    path: &Path,
    mode: u32,
    work: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let old = fs::symlink_metadata(path)?.permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(old.mode() | mode))?;
            let done = work();
            fs::set_permissions(path, old)?;
            done
        }
        done => done,
    }
}

/// The file of a change set's path.
pub(super) fn change_path(escaped: &str) -> io::Result<PathBuf> {
    let bytes = rye_engine::protocol::unescape_path(escaped);
    let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
}
