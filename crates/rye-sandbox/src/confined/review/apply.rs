//! Applies a change set to the workspace: all of it or nothing, also if the process is killed.
//!
//! New contents are first written to a staging directory in the workspace. Then the journal, a
//! file in the session's state, is committed, and each file is exchanged with its staged version
//! by a rename. Every step can be recognised as done, so the next process completes what a dead
//! one began. If a file turns out to have changed, the steps are undone in reverse order. The
//! replaced files stay in the staging directory until all steps are done.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, chmodat, fsync, mkdirat, openat2,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rye_engine::protocol::{Change, ChangeSet, FileKind, FileVersion, Selection, Settlement};
use serde::{Deserialize, Serialize};

use super::scan::{change_path, open_file, version, with_permission};

/// Start of the name of the staging directory, in the workspace.
const STAGING: &str = ".rye-apply-";
/// Added to the name of a file whose place was taken while it was moved away.
const SAVED: &str = ".rye-saved";
const JOURNAL: &str = "journal.json";

/// What is being done to the workspace.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) key: String,
    state: State,
    /// Name of the staging directory.
    staging: String,
    steps: Vec<Step>,
    pub(super) settlement: Settlement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The new contents are being written.
    Staging,
    /// All steps will be done.
    Committed,
    /// All steps will be undone.
    Undoing,
    /// All steps are done; the session's changes will be discarded.
    Applied,
}

/// A step, in the order of execution. `staged` is a name in the staging directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Remove {
        path: String,
        staged: String,
        old: FileVersion,
    },
    RemoveDir {
        path: String,
        mode: u32,
    },
    MakeDir {
        path: String,
        mode: u32,
    },
    /// Exchanges a file with its staged version, or adds it.
    Put {
        path: String,
        staged: String,
        /// Inode of the staged version.
        inode: u64,
        old: Option<FileVersion>,
    },
    ChangeMode {
        path: String,
        old: u32,
        new: u32,
    },
}

/// Why steps were undone.
#[derive(Debug)]
pub(super) enum Failure {
    /// The workspace differs from what was approved.
    Outdated,
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Applies changes of one session.
pub(super) struct Applier<'a> {
    /// Directory of the session's state.
    pub(super) state: &'a Path,
    pub(super) upper: PathBuf,
    pub(super) workspace: &'a Path,
    /// Called between any two changes of a file; tests kill the process here.
    pub(super) checkpoint: &'a dyn Fn(),
}

impl Applier<'_> {
    fn journal_file(&self) -> PathBuf {
        self.state.join(JOURNAL)
    }

    fn write(&self, journal: &Journal) -> io::Result<()> {
        (self.checkpoint)();
        let bytes = serde_json::to_vec(journal)?;
        let written = durable::write(&self.journal_file(), &bytes, 0o600, IfExists::Replace);
        written.map_err(io::Error::other)?;
        (self.checkpoint)();
        Ok(())
    }

    /// Applies the selected changes. The journal remains until the caller [removes](Self::clean) it.
    pub(super) fn apply(
        &self,
        key: &str,
        set: &ChangeSet,
        selection: &Selection,
        contents: &[(String, Vec<u8>)],
    ) -> Result<Journal, Failure> {
        let selected = set.changes.iter().filter(|it| selection.includes(&it.path));
        let selected: Vec<_> = selected.collect();
        let paths = |is_selected: bool| {
            let changes = set.changes.iter();
            let changes = changes.filter(|it| selection.includes(&it.path) == is_selected);
            changes.map(|it| it.path.clone()).collect()
        };
        let mut journal = Journal {
            key: key.to_owned(),
            state: State::Staging,
            staging: format!("{STAGING}{:.12}", lillux::Hash::digest(key).to_hex()),
            steps: Vec::new(),
            settlement: Settlement {
                applied: paths(true),
                edited: contents.iter().map(|(path, _)| path.clone()).collect(),
                rejected: paths(false),
            },
        };
        if selected.is_empty() {
            journal.state = State::Applied;
            self.write(&journal)?;
            return Ok(journal);
        }
        self.write(&journal)?;
        let staged = self.stage(&journal, &selected, contents);
        match staged {
            Ok(steps) => journal.steps = steps,
            Err(error) => {
                self.clean(&journal)?;
                return Err(error.into());
            }
        }
        journal.state = State::Committed;
        self.write(&journal)?;
        self.resume(journal)
    }

    /// The journal of a process that died, after completing or undoing what it did.
    pub(super) fn recover(&self) -> Result<Option<Journal>, Failure> {
        let bytes = match fs::read(self.journal_file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let journal: Journal = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
        match self.resume(journal) {
            Ok(journal) => Ok(Some(journal)),
            // It was undone; the decision can be made again.
            Err(Failure::Outdated) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn resume(&self, mut journal: Journal) -> Result<Journal, Failure> {
        match journal.state {
            State::Staging => {
                self.clean(&journal)?;
                return Err(Failure::Outdated);
            }
            State::Applied => return Ok(journal),
            State::Undoing => {
                self.undo(&journal)?;
                return Err(Failure::Outdated);
            }
            State::Committed => {}
        }
        let done = Tree::open(self, &journal).and_then(|tree| {
            for step in &journal.steps {
                tree.forward(step)?;
                (self.checkpoint)();
            }
            tree.sync(&journal.steps)
        });
        if let Err(failure) = done {
            journal.state = State::Undoing;
            self.write(&journal)?;
            self.undo(&journal)?;
            return Err(failure);
        }
        journal.state = State::Applied;
        self.write(&journal)?;
        Ok(journal)
    }

    fn undo(&self, journal: &Journal) -> Result<(), Failure> {
        let tree = Tree::open(self, journal)?;
        for step in journal.steps.iter().rev() {
            tree.back(step)?;
            (self.checkpoint)();
        }
        tree.sync(&journal.steps)?;
        self.clean(journal)?;
        Ok(())
    }

    /// Removes the staging directory and the journal.
    pub(super) fn clean(&self, journal: &Journal) -> io::Result<()> {
        let staging = self.workspace.join(&journal.staging);
        remove_tree(&staging)?;
        (self.checkpoint)();
        fs::remove_file(self.journal_file())?;
        durable::sync_dir(self.state).map_err(io::Error::other)
    }

    /// Writes the new contents to the staging directory and returns the steps.
    fn stage(
        &self,
        journal: &Journal,
        selected: &[&Change],
        contents: &[(String, Vec<u8>)],
    ) -> io::Result<Vec<Step>> {
        let staging = self.workspace.join(&journal.staging);
        remove_tree(&staging)?;
        fs::create_dir(&staging)?;
        fs::set_permissions(&staging, fs::Permissions::from_mode(0o700))?;
        let is_dir = |it: &FileVersion| it.kind == FileKind::Directory;
        let (mut removals, mut dirs, mut puts, mut modes) = (vec![], vec![], vec![], vec![]);
        for (number, change) in selected.iter().enumerate() {
            let (path, staged) = (change.path.clone(), number.to_string());
            let (old, new) = (change.old.clone(), change.new.as_ref());
            match (old, new) {
                (Some(old), Some(new)) if is_dir(&old) && is_dir(new) => {
                    let (old, new) = (old.mode, new.mode);
                    modes.push(Step::ChangeMode { path, old, new });
                    continue;
                }
                (Some(old), _) if is_dir(&old) => removals.push(Step::RemoveDir {
                    path: path.clone(),
                    mode: old.mode,
                }),
                (Some(old), new) if new.is_none_or(is_dir) => removals.push(Step::Remove {
                    path: path.clone(),
                    staged: format!("old-{number}"),
                    old,
                }),
                _ => {}
            }
            let Some(new) = new else { continue };
            if is_dir(new) {
                dirs.push(path);
                continue;
            }
            dirs.extend(parents(&path).map(str::to_owned));
            let edited = contents.iter().find(|(edited, _)| *edited == path);
            let file = staging.join(&staged);
            self.stage_file(
                &file,
                change,
                new,
                edited.map(|(_, bytes)| bytes.as_slice()),
            )?;
            let old = change.old.clone().filter(|old| !is_dir(old));
            puts.push(Step::Put {
                inode: fs::symlink_metadata(&file)?.ino(),
                path,
                staged,
                old,
            });
            (self.checkpoint)();
        }
        File::open(&staging)?.sync_all()?;
        // Below before above; removals of links and files among them in any order.
        removals.sort_by_key(|step| std::cmp::Reverse(step.path().matches('/').count()));
        dirs.sort();
        dirs.dedup();
        let mut steps = removals;
        for path in dirs {
            let relative = change_path(&path)?;
            // Only directories that the session created.
            let created = fs::symlink_metadata(self.upper.join(&relative))?;
            let exists = fs::symlink_metadata(self.workspace.join(&relative));
            if exists.is_ok_and(|it| it.is_dir()) {
                continue;
            }
            let mode = created.mode() & 0o777;
            // Files are put into it first.
            let usable = mode | 0o700;
            if usable != mode {
                let (old, new) = (usable, mode);
                let path = path.clone();
                modes.push(Step::ChangeMode { path, old, new });
            }
            let mode = usable;
            steps.push(Step::MakeDir { path, mode });
        }
        modes.sort_by_key(|step| std::cmp::Reverse(step.path().matches('/').count()));
        steps.extend(puts);
        steps.extend(modes);
        Ok(steps)
    }

    fn stage_file(
        &self,
        file: &Path,
        change: &Change,
        new: &FileVersion,
        edited: Option<&[u8]>,
    ) -> io::Result<()> {
        let source = self.upper.join(change_path(&change.path)?);
        if new.kind == FileKind::Link {
            return symlink(fs::read_link(source)?, file);
        }
        let mut staged = File::create_new(file)?;
        if let Some(bytes) = edited {
            staged.write_all(bytes)?;
        } else {
            let mut content = with_permission(&source, 0o600, || open_file(&source))?;
            io::copy(&mut content, &mut staged)?;
            // Keeps the order in which the session wrote its files, which build tools rely on.
            staged.set_modified(content.metadata()?.modified()?)?;
        }
        staged.set_permissions(fs::Permissions::from_mode(new.mode))?;
        staged.sync_all()?;
        let found = version(file, &fs::symlink_metadata(file)?)?;
        let is_complete = edited.is_some() || found.hash == new.hash || new.mode & 0o400 == 0;
        is_complete.then_some(()).ok_or_else(|| {
            let message = format!("{} changed while it was copied", change.path);
            io::Error::other(message)
        })
    }
}

impl Step {
    fn path(&self) -> &str {
        match self {
            Self::Remove { path, .. }
            | Self::RemoveDir { path, .. }
            | Self::MakeDir { path, .. }
            | Self::Put { path, .. }
            | Self::ChangeMode { path, .. } => path,
        }
    }
}

/// The directories above a path, outermost first.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// The open workspace and staging directory.
struct Tree {
    workspace: OwnedFd,
    staging: OwnedFd,
    /// The staging directory, for reading.
    staging_path: PathBuf,
}

impl Tree {
    fn open(applier: &Applier<'_>, journal: &Journal) -> Result<Self, Failure> {
        let staging_path = applier.workspace.join(&journal.staging);
        Ok(Self {
            workspace: File::open(applier.workspace)?.into(),
            staging: File::open(&staging_path)?.into(),
            staging_path,
        })
    }

    /// Opens the directory of a path without following links, and returns the name in it.
    fn parent(&self, path: &str) -> Result<(OwnedFd, OsString), Failure> {
        let path = change_path(path)?;
        let name = path.file_name().ok_or(Failure::Outdated)?;
        let dir = path.parent().filter(|it| !it.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let dir = dir.unwrap_or(Path::new("."));
        let opened = openat2(&self.workspace, dir, flags, Mode::empty(), resolve);
        match opened {
            Ok(dir) => Ok((dir, name.to_owned())),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(Failure::Outdated),
            Err(error) => Err(error.into()),
        }
    }

    /// Does a step unless it is done already.
    fn forward(&self, step: &Step) -> Result<(), Failure> {
        let (dir, name) = self.parent(step.path())?;
        match step {
            Step::Remove { staged, old, .. } => {
                if inode(&self.staging, staged.as_ref())?.is_none() {
                    rename(&dir, &name, &self.staging, staged, RenameFlags::NOREPLACE)?;
                }
                self.check_old(staged, old)
            }
            Step::RemoveDir { .. } => match unlinkat(&dir, &name, AtFlags::REMOVEDIR) {
                // A file that stays, or a new one, keeps the directory.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            },
            Step::MakeDir { mode, .. } => {
                match mkdirat(&dir, &name, Mode::from_raw_mode(0o700)) {
                    Ok(()) => {}
                    Err(Errno::EXIST) if is_dir(&dir, &name)? => {}
                    Err(Errno::EXIST) => return Err(Failure::Outdated),
                    Err(error) => return Err(error.into()),
                }
                Ok(chmodat(
                    &dir,
                    &name,
                    Mode::from_raw_mode(*mode),
                    AtFlags::empty(),
                )?)
            }
            Step::Put {
                staged, inode, old, ..
            } => {
                let is_done = self::inode(&dir, &name)? == Some(*inode);
                let Some(old) = old else {
                    if !is_done {
                        rename(
                            &self.staging,
                            staged.as_ref(),
                            &dir,
                            &name,
                            RenameFlags::NOREPLACE,
                        )?;
                    }
                    return Ok(());
                };
                if !is_done {
                    rename(
                        &self.staging,
                        staged.as_ref(),
                        &dir,
                        &name,
                        RenameFlags::EXCHANGE,
                    )?;
                }
                self.check_old(staged, old)
            }
            Step::ChangeMode { new, .. } => Ok(chmodat(
                &dir,
                &name,
                Mode::from_raw_mode(*new),
                AtFlags::empty(),
            )?),
        }
    }

    /// Undoes a step if it was done.
    fn back(&self, step: &Step) -> Result<(), Failure> {
        let (dir, name) = match self.parent(step.path()) {
            Ok(parent) => parent,
            // Not even its directory was created.
            Err(Failure::Outdated) => return Ok(()),
            Err(error) => return Err(error),
        };
        match step {
            Step::Remove { staged, .. } => {
                if inode(&self.staging, staged.as_ref())?.is_some() {
                    let (from, file) = (&self.staging, staged.as_ref());
                    let back = rename(from, file, &dir, &name, RenameFlags::NOREPLACE);
                    if matches!(back, Err(Failure::Outdated)) {
                        // Someone has created another file there; both stay.
                        let mut other = name.clone();
                        other.push(SAVED);
                        rename(from, file, &dir, &other, RenameFlags::NOREPLACE)?;
                    } else {
                        back?;
                    }
                }
            }
            Step::RemoveDir { mode, .. } => {
                if mkdirat(&dir, &name, Mode::from_raw_mode(*mode)).is_ok() {
                    chmodat(&dir, &name, Mode::from_raw_mode(*mode), AtFlags::empty())?;
                }
            }
            Step::MakeDir { .. } => match unlinkat(&dir, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            },
            Step::Put {
                staged, inode, old, ..
            } => {
                if self::inode(&dir, &name)? == Some(*inode) {
                    let flags = match old {
                        Some(_) => RenameFlags::EXCHANGE,
                        None => RenameFlags::NOREPLACE,
                    };
                    rename(&dir, &name, &self.staging, staged, flags)?;
                }
            }
            Step::ChangeMode { old, .. } => {
                chmodat(&dir, &name, Mode::from_raw_mode(*old), AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Compares a file that was moved away with the version that was approved to be replaced.
    fn check_old(&self, staged: &str, old: &FileVersion) -> Result<(), Failure> {
        let file = self.staging_path.join(staged);
        let found = version(&file, &fs::symlink_metadata(&file)?)?;
        if found == *old {
            return Ok(());
        }
        Err(Failure::Outdated)
    }

    /// Flushes the directories of all steps.
    fn sync(&self, steps: &[Step]) -> Result<(), Failure> {
        let mut dirs: Vec<_> = steps
            .iter()
            .map(|step| step.path().rsplit_once('/').map_or("", |(dir, _)| dir))
            .collect();
        dirs.sort_unstable();
        dirs.dedup();
        for dir in dirs {
            // A removed directory has nothing to flush.
            if let Ok((dir, _)) = self.parent(&format!("{dir}/x")) {
                fsync(dir)?;
            }
        }
        fsync(&self.workspace)?;
        Ok(fsync(&self.staging)?)
    }
}

/// Renames without replacing anything that is not part of the step.
fn rename(
    from: &impl AsFd,
    old: &std::ffi::OsStr,
    to: &impl AsFd,
    new: impl AsRef<std::ffi::OsStr>,
    flags: RenameFlags,
) -> Result<(), Failure> {
    match renameat_with(from, old, to, new.as_ref(), flags) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::ISDIR) => Err(Failure::Outdated),
        Err(error) => Err(error.into()),
    }
}

fn inode(dir: &OwnedFd, name: &std::ffi::OsStr) -> Result<Option<u64>, Failure> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.st_ino)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_dir(dir: &OwnedFd, name: &std::ffi::OsStr) -> Result<bool, Failure> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Removes a directory with its content, also if its owner may not enter parts of it.
pub(super) fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        removed => return removed,
    }
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(dir)
}
