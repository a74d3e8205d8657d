//! Private copies of what a tool can load.
//!
//! An interpreter that loads from the directory in which a tool lies loads whatever is there
//! at that moment. So it gets a copy: a directory in the cache that holds exactly the verified
//! bytes and nothing else, named by the hash of its content. What cannot be in the copy,
//! such as a file that is not listed or a pipe, cannot be loaded; a file that is swapped after
//! the check changes nothing; and bytecode that an interpreter keeps by path is bytecode of
//! this content.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::hash::Hasher;
use lillux::{Hash, PathContext as _};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::library::{Dependencies, ItemError, LockedEnvironment, compare};
use crate::manifest::{Entries, Entry, payload};
use crate::owner_only_dir::ensure_owner_only_dir;
use crate::parse_cache::ParseCache;
use crate::space::{Directory, Filter, Links, SpaceError};

/// Verified files, and the signed environments beside them.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Where the entries are read from.
    source: Option<Directory>,
    entries: Entries,
    /// Entries whose bytes are at hand.
    own: BTreeMap<String, Arc<[u8]>>,
    environments: BTreeMap<String, LockedEnvironment>,
    waived: usize,
}

impl Snapshot {
    pub(crate) fn new(source: Directory, entries: Entries, waived: usize) -> Self {
        Self {
            source: Some(source),
            entries,
            waived,
            ..Self::default()
        }
    }

    /// Adds a file that was verified by itself, such as the tool.
    pub fn add_file(&mut self, path: &str, bytes: Arc<[u8]>) {
        let entry = Entry::File(Hash::digest(&bytes));
        self.entries.insert(path.to_owned(), entry);
        self.own.insert(path.to_owned(), bytes);
    }

    /// Adds a signed environment, which is linked to and not copied.
    pub fn add_environment(&mut self, name: &str, environment: LockedEnvironment) {
        self.environments.insert(name.to_owned(), environment);
    }

    /// Adds an environment that is not signed, in development mode.
    pub fn add_unsigned_environment(&mut self, name: &str, path: PathBuf) {
        let hash = Hash::digest("unsigned");
        self.add_environment(name, LockedEnvironment { path, hash });
        self.waived += 1;
    }

    /// The directories that were verified and are loaded from where they are.
    pub fn environments(&self) -> impl Iterator<Item = &LockedEnvironment> {
        self.environments.values()
    }

    /// What was verified beside the tool itself.
    pub fn dependencies(&self) -> Dependencies {
        Dependencies {
            files: self.entries.len() - self.own.len() + self.environments.len(),
            waived: self.waived,
            hash: self.hash(),
        }
    }

    fn hash(&self) -> Hash {
        let mut hasher = Hasher::default();
        hasher.update(payload("", &self.entries).as_bytes());
        for (name, environment) in &self.environments {
            let path = environment.path.display();
            hasher.update(format!("environment {name}\t{path}\n").as_bytes());
            hasher.update(environment.hash.as_bytes());
        }
        hasher.finish().0
    }

    /// The copy, made if it is not there or not intact: `{cache}/materialised/{hash}/{name}`.
    /// `name` may have several segments.
    pub fn materialise(&self, cache: &Path, name: &str) -> Result<PathBuf, ItemError> {
        let path = cache
            .join("materialised")
            .join(self.hash().to_hex())
            .join(name);
        let parent = path.parent().unwrap_or(&path);
        ensure_owner_only_dir(parent).map_err(SpaceError::from)?;
        if self.is_intact(&path, cache)? {
            return Ok(path);
        }
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(parent)
            .at("write to", parent)
            .map_err(SpaceError::from)?;
        let copy = temporary.path().join("copy");
        self.write(&copy)?;
        // In the place of one that was damaged; processes that run from that one keep it.
        let exchanged = renameat_with(CWD, &copy, CWD, &path, RenameFlags::EXCHANGE);
        if exchanged.is_err()
            && let Err(error) = fs::rename(&copy, &path)
            && !self.is_intact(&path, cache)?
        {
            return Err(error).at("write", &path).map_err(SpaceError::from)?;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o500))
            .at("set the mode of", &path)
            .map_err(SpaceError::from)?;
        make_removable(temporary.path());
        Ok(path)
    }

    fn expected(&self) -> Entries {
        let mut expected = self.entries.clone();
        for (name, environment) in &self.environments {
            let target = environment.path.display().to_string();
            expected.insert(name.clone(), Entry::Link(target));
        }
        expected
    }

    fn is_intact(&self, path: &Path, cache: &Path) -> Result<bool, SpaceError> {
        let Some(copy) = Directory::open(path)? else {
            return Ok(false);
        };
        let filter = Filter {
            recursive: true,
            exclude_dirs: &[],
            nested_manifests: false,
            // Nothing is in a directory of this name.
            links: Links::OutOf(path),
        };
        let scan = copy.scan(&filter)?;
        let parse_cache = ParseCache::new(Some(cache));
        Ok(compare(&copy, &scan, &self.expected(), &parse_cache).is_empty())
    }

    fn write(&self, to: &Path) -> Result<(), ItemError> {
        let mut folders = vec![to.to_owned()];
        let folder = |folder: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.at("create the directory", folder)
                .map_err(SpaceError::from)
        };
        folder(to)?;
        for (path, entry) in &self.expected() {
            let place = to.join(path);
            let parent = place.parent().unwrap_or(to);
            if !parent.is_dir() {
                folder(parent)?;
                let new = parent.ancestors().take_while(|it| *it != to);
                folders.extend(new.map(Path::to_owned));
            }
            let written = match entry {
                Entry::Link(target) => symlink(target, &place),
                Entry::File(hash) => self.write_file(path, *hash, &place),
            };
            written.at("write", &place).map_err(SpaceError::from)?;
        }
        // A tool that writes beside itself fails rather than changes what is loaded next. The
        // outermost directory stays writable until it is in its place: moving a directory to
        // another parent writes to it.
        for folder in folders.into_iter().skip(1) {
            fs::set_permissions(&folder, Permissions::from_mode(0o500))
                .at("set the mode of", &folder)
                .map_err(SpaceError::from)?;
        }
        Ok(())
    }

    fn write_file(&self, path: &str, hash: Hash, place: &Path) -> io::Result<()> {
        let read;
        let bytes: &[u8] = match (self.own.get(path), &self.source) {
            (Some(bytes), _) => bytes,
            (None, Some(source)) => {
                read = source.bytes(path)?;
                &read
            }
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        if Hash::digest(bytes) != hash {
            let changed = format!("{path} changed while it was read");
            return Err(io::Error::other(changed));
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o500)
            .open(place)?;
        file.write_all(bytes)
    }
}

/// Makes a tree of read-only directories removable for who owns it.
fn make_removable(path: &Path) {
    let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}
