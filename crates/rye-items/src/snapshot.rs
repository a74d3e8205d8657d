//! Snapshots: private copies of a tool's dependencies.
//!
//! An interpreter that imports from a tool's directory would load whatever is there at that
//! moment. So it gets a copy in the cache that contains exactly the verified bytes, named by the
//! hash of its content. Unlisted files and pipes are not in the copy, so they cannot be loaded. A
//! file that is swapped after the check has no effect. Bytecode that an interpreter caches by path
//! always belongs to this content.

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

/// Verified files and signed environments.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The directory that the entries are copied from.
    source: Option<Directory>,
    entries: Entries,
    /// Bytes of entries that are not read from `source`.
    in_memory: BTreeMap<String, Arc<[u8]>>,
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

    /// Adds a separately verified file, such as the tool itself.
    pub fn add_file(&mut self, path: &str, bytes: Arc<[u8]>) {
        let entry = Entry::File(Hash::digest(&bytes));
        self.entries.insert(path.to_owned(), entry);
        self.in_memory.insert(path.to_owned(), bytes);
    }

    /// Adds a signed environment as a symbolic link.
    pub fn add_environment(&mut self, name: &str, environment: LockedEnvironment) {
        self.environments.insert(name.to_owned(), environment);
    }

    /// Adds an unsigned environment, in development mode.
    pub fn add_unsigned_environment(&mut self, name: &str, path: PathBuf) {
        let hash = Hash::digest("unsigned");
        self.add_environment(name, LockedEnvironment { path, hash });
        self.waived += 1;
    }

    /// The verified directories that are linked rather than copied.
    pub fn environments(&self) -> impl Iterator<Item = &LockedEnvironment> {
        self.environments.values()
    }

    /// Summary of the verified files, without the tool itself.
    pub fn dependencies(&self) -> Dependencies {
        Dependencies {
            files: self.entries.len() - self.in_memory.len() + self.environments.len(),
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

    /// Returns the copy at `{cache}/materialised/{hash}/{name}`, and creates it if it is missing
    /// or damaged. `name` may have several segments.
    pub fn materialise(&self, cache: &Path, name: &str) -> Result<PathBuf, ItemError> {
        let path = cache
            .join("materialised")
            .join(self.hash().to_hex())
            .join(name);
        let parent = path.parent().unwrap_or(&path);
        ensure_owner_only_dir(parent)?;
        if self.is_intact(&path, cache)? {
            return Ok(path);
        }
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(parent)
            .at("write to", parent)?;
        let copy = temporary.path().join("copy");
        self.write(&copy)?;
        // Replaces a damaged copy. Processes that run from the damaged copy keep it open.
        let exchanged = renameat_with(CWD, &copy, CWD, &path, RenameFlags::EXCHANGE);
        if exchanged.is_err()
            && let Err(error) = fs::rename(&copy, &path)
            && !self.is_intact(&path, cache)?
        {
            return Err(error).at("write", &path)?;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o500)).at("set the mode of", &path)?;
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
            // Links may point anywhere, because the copy contains no real path.
            links: Links::NotInto(path),
        };
        let scan = copy.scan(&filter)?;
        let parse_cache = ParseCache::new(Some(cache));
        Ok(compare(&copy, &scan, &self.expected(), &parse_cache).is_empty())
    }

    fn write(&self, to: &Path) -> Result<(), ItemError> {
        let mut dirs = vec![to.to_owned()];
        let create = |dir: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.at("create the directory", dir)
        };
        create(to)?;
        for (path, entry) in &self.expected() {
            let target_path = to.join(path);
            let parent = target_path.parent().unwrap_or(to);
            if !parent.is_dir() {
                create(parent)?;
                let new = parent.ancestors().take_while(|it| *it != to);
                dirs.extend(new.map(Path::to_owned));
            }
            let written = match entry {
                Entry::Link(target) => symlink(target, &target_path),
                Entry::File(hash) => self.write_file(path, *hash, &target_path),
            };
            written.at("write", &target_path)?;
        }
        // A tool that writes to its own directory fails instead of changing what the next call
        // loads. The top directory stays writable until it is moved to its final path, because
        // moving a directory to another parent modifies it.
        for dir in dirs.into_iter().skip(1) {
            fs::set_permissions(&dir, Permissions::from_mode(0o500)).at("set the mode of", &dir)?;
        }
        Ok(())
    }

    fn write_file(&self, path: &str, hash: Hash, to: &Path) -> io::Result<()> {
        let read;
        let bytes: &[u8] = match (self.in_memory.get(path), &self.source) {
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
            .open(to)?;
        file.write_all(bytes)
    }
}

/// Makes a tree of read-only directories removable for its owner.
fn make_removable(path: &Path) {
    let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}
