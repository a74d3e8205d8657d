//! Verifies and signs a tool's dependencies: the files it can load from its own directory, and
//! interpreter environments. A manifest covers each directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};
use lillux::hash::Hasher;
use lillux::keys::{Purpose, SigningKey};
use lillux::{Hash, PathContext as _, shell_word};

use super::verify_batch::parallel;
use super::{ItemError, Library, PathItem, SignError, SignOutcome};
use crate::id::ItemKind;
use crate::integrity::{IntegrityError, IntegrityProblem};
use crate::lookup;
use crate::manifest::{
    self, DEPENDENCIES, ENVIRONMENT, Entries, Entry, MANIFEST, Manifest, payload,
};
use crate::metadata;
use crate::parse_cache::ParseCache;
use crate::snapshot::Snapshot;
use crate::space::{Deviation, DirEntry, Directory, Filter, Links, Root, Scan, Space, SpaceError};
use crate::trust::Trust;

/// A directory that reaches one of these limits is hashed only when the state of its files
/// changes; a smaller one is hashed by every call.
const CACHED_BYTES: u64 = 1 << 20;
const CACHED_FILES: usize = 64;

/// Names of excluded directories, unless a runtime gives its own list.
pub const EXCLUDED_DIRS: [&str; 4] = [".git", "__pycache__", "node_modules", ".venv"];

/// The file that marks a Python virtual environment.
const PYVENV: &str = "pyvenv.cfg";

/// The directory from which a tool can load code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Relative to the root's `.ai/`, inside `tools`.
    pub dir: String,
    /// Whether code can also be loaded from subdirectories.
    pub recursive: bool,
    /// Names of subdirectories that are never loaded from.
    pub exclude_dirs: Vec<String>,
}

impl Scope {
    fn filter(&self) -> Filter<'_> {
        Filter {
            recursive: self.recursive,
            exclude_dirs: &self.exclude_dirs,
            nested_manifests: true,
            links: Links::Inside,
        }
    }

    /// Whether the scope contains a path, which is relative to its directory.
    fn covers(&self, path: &str) -> bool {
        let (parent, _) = path.rsplit_once('/').unwrap_or(("", path));
        let excluded = path
            .split('/')
            .any(|name| self.exclude_dirs.iter().any(|dir| dir == name));
        !excluded && (self.recursive || parent.is_empty())
    }
}

/// The item whose dependencies are verified.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The item's reference, for error messages.
    pub item: &'a str,
    /// The argument with which `rye sign` signs the dependencies.
    pub sign_argument: &'a str,
    /// The item's own file in the directory and its bytes, which were verified separately.
    pub file: Option<(&'a str, &'a [u8])>,
}

/// Summary of verified dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependencies {
    /// The number of files.
    pub files: usize,
    /// The number of files that failed verification but are allowed in development mode.
    pub waived: usize,
    /// The hash over all paths and file hashes.
    pub hash: Hash,
}

/// A verified interpreter environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedEnvironment {
    /// The directory of the environment.
    pub path: PathBuf,
    /// The hash of its manifest's entries.
    pub hash: Hash,
}

impl Library {
    /// Whether items that fail verification load with a warning.
    pub fn dev_mode(&self) -> bool {
        self.dev_mode
    }

    /// Verifies all files of a scope against its manifest. In development mode, deviations outside
    /// the system space are allowed.
    ///
    /// A bundle of the system space needs no manifest if every file in the scope has a valid
    /// signature line.
    pub fn verify_dependencies(
        &self,
        root: &Root,
        scope: &Scope,
        owner: Owner<'_>,
        trust: &Trust<'_>,
    ) -> Result<Snapshot, ItemError> {
        let missing = || SpaceError::ChangedWhileReading(root.path_to(&scope.dir));
        let directory = Directory::open_in(root, &scope.dir)?.ok_or_else(missing)?;
        let scan = directory.scan(&scope.filter())?;
        let manifest = directory.read(MANIFEST)?;
        let is_own = |path: &str| owner.file.is_some_and(|(own, _)| own == path);
        let verified = match &manifest {
            Some(bytes) => self.check_manifest(&directory, &scan, bytes, scope, trust),
            None if root.space() == Space::System => {
                self.check_lines(root, &scan, &scope.dir, trust)?
            }
            None => match all_names(&scan) {
                names if names.iter().all(|path| is_own(path)) => Ok(Entries::new()),
                names => Err(IntegrityProblem::NoManifest(names)),
            },
        };
        // The manifest must list the same bytes that were verified as the item.
        let verified = verified.and_then(|entries| match owner.file {
            Some((path, bytes)) if differs(entries.get(path), bytes) => {
                let changed = (path.to_owned(), Deviation::Changed);
                Err(IntegrityProblem::Files(vec![changed]))
            }
            _ => Ok(entries),
        });
        let (entries, waived) = match verified {
            Ok(entries) => (entries, 0),
            Err(problem) if self.dev_mode && root.space() != Space::System => {
                let waived = problem.file_count();
                (current_entries(&directory, &scan), waived)
            }
            Err(problem) => {
                let path = root.path_to(&format!("{}/{MANIFEST}", scope.dir));
                let space = Some(root.space());
                let error = IntegrityError::new(owner.item.to_owned(), path, space, problem, None)
                    .with_sign_argument(owner.sign_argument);
                return Err(ItemError::Integrity(Box::new(error)));
            }
        };
        let mut snapshot = Snapshot::new(directory, entries, waived);
        if let Some((path, bytes)) = owner.file {
            snapshot.add_file(path, bytes.into());
        }
        Ok(snapshot)
    }

    /// The entries of a scope from its manifest, if the manifest is valid and the directory
    /// matches it.
    fn check_manifest(
        &self,
        directory: &Directory,
        scan: &Scan,
        manifest: &[u8],
        scope: &Scope,
        trust: &Trust<'_>,
    ) -> Result<Entries, IntegrityProblem> {
        let manifest = Manifest::parse(manifest)?;
        manifest.verify(DEPENDENCIES, trust)?;
        let mut entries = manifest.entries(&scope.dir)?;
        entries.retain(|path, _| scope.covers(path));
        without_deviations(compare(directory, scan, &entries, &self.parse_cache))?;
        Ok(entries)
    }

    /// The entries of a directory without a manifest, if every file has a valid signature line.
    fn check_lines(
        &self,
        root: &Root,
        scan: &Scan,
        dir: &str,
        trust: &Trust<'_>,
    ) -> Result<Result<Entries, IntegrityProblem>, ItemError> {
        let mut deviations = scan.refused.clone();
        let mut entries = Entries::new();
        for (path, name) in &scan.entries {
            let relative = format!("{dir}/{path}");
            let found = match name {
                DirEntry::File(_) => {
                    lookup::item_at(root, ItemKind::Tool, &relative, &self.extractors)
                }
                DirEntry::Link(_) => None,
            };
            match found.map(|found| self.verify(&found, trust)) {
                Some(Ok(item)) => {
                    entries.insert(path.clone(), Entry::File(Hash::digest(item.bytes())));
                }
                Some(Err(ItemError::Integrity(_))) | None => {
                    deviations.push((path.clone(), Deviation::Unsigned));
                }
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(without_deviations(deviations).map(|()| entries))
    }

    /// The path and payload of the manifest that signing a scope would write. None if this key
    /// has already signed exactly this payload.
    pub fn pending_manifest(
        &self,
        root: &Root,
        scope: &Scope,
        key: &SigningKey,
    ) -> Result<Option<(PathBuf, String)>, SignError> {
        let (directory, payload) = unsigned_manifest(root, scope)?;
        let path = directory.real_path()?.join(MANIFEST);
        let is_signed = is_signed(&directory, &payload, DEPENDENCIES, key)?;
        Ok((!is_signed).then_some((path, payload)))
    }

    /// Signs all files of a scope by writing its manifest. With `approved`, fails unless the
    /// payload has this hash.
    pub fn sign_manifest(
        &self,
        root: &Root,
        scope: &Scope,
        key: &SigningKey,
        approved: Option<Hash>,
    ) -> Result<SignOutcome, SignError> {
        if root.space() == Space::System {
            return Err(SignError::SystemSpace(scope.dir.clone()));
        }
        let Some((path, payload)) = self.pending_manifest(root, scope, key)? else {
            return Ok(SignOutcome::Unchanged);
        };
        if approved.is_some_and(|approved| approved != Hash::digest(&payload)) {
            return Err(SignError::ChangedSinceApproval(path));
        }
        if let Some(directory) = Directory::open_in(root, &scope.dir)? {
            self.check_encodings(&directory, scope)?;
        }
        write_manifest(path, &payload, DEPENDENCIES, key)
    }

    /// Signs all files in a directory: as dependencies if it contains tools, otherwise as an
    /// environment. Returns the path of the manifest.
    pub fn sign_directory(
        &self,
        path: &Path,
        key: &SigningKey,
    ) -> Result<(PathBuf, SignOutcome), SignError> {
        if !path.is_dir() {
            return Err(SignError::NoDirectory(path.to_owned()));
        }
        let path = &std::path::absolute(path)
            .at("read the metadata of", path)
            .map_err(SpaceError::from)?;
        let is_excluded = path
            .file_name()
            .is_some_and(|name| EXCLUDED_DIRS.iter().any(|dir| name == *dir));
        let DirLocation { root, name, .. } = self.locate_dir(path)?;
        if is_excluded || !is_tools(&name) || !self.has_tools(path)? {
            return self.sign_environment(path, key);
        }
        let scope = Scope {
            dir: name,
            recursive: true,
            exclude_dirs: EXCLUDED_DIRS.map(str::to_owned).to_vec(),
        };
        let outcome = self.sign_manifest(root, &scope, key, None)?;
        Ok((path.join(MANIFEST), outcome))
    }

    /// Whether a directory contains a runnable tool.
    fn has_tools(&self, path: &Path) -> Result<bool, SpaceError> {
        let (PathItem::Items(items), _) = self.items_at_path(path)? else {
            return Ok(false);
        };
        Ok(items.into_iter().any(|found| {
            let bytes = found.root.read(&found.relative).ok().flatten();
            let bytes = bytes.map(|raw| raw.bytes).unwrap_or_default();
            let kind = found.reference.kind;
            metadata::extract(&bytes, &found.extension, kind, &self.extractors)
                .is_ok_and(|metadata| metadata.executor_id().is_some())
        }))
    }

    /// Refuses source files that declare an encoding other than UTF-8, as for items.
    fn check_encodings(&self, directory: &Directory, scope: &Scope) -> Result<(), SignError> {
        for (path, name) in &directory.scan(&scope.filter())?.entries {
            let extension = path.rfind('.').map_or("", |dot| &path[dot..]);
            let is_source = self.extractors.rule(extension).is_some();
            if !is_source || !matches!(name, DirEntry::File(_)) {
                continue;
            }
            let file = directory.path().join(path);
            let bytes = directory.bytes(path).at("read", &file);
            let bytes = bytes.map_err(SpaceError::from)?;
            metadata::check_encoding(&bytes, extension).map_err(|source| ItemError::Metadata {
                path: file,
                source: Box::new(source),
            })?;
        }
        Ok(())
    }

    /// Signs an interpreter environment, or any other directory of a project outside `.ai/`, by
    /// writing its manifest.
    pub fn sign_environment(
        &self,
        path: &Path,
        key: &SigningKey,
    ) -> Result<(PathBuf, SignOutcome), SignError> {
        let DirLocation { name, boundary, .. } = self.locate_dir(path)?;
        let directory = Directory::open(path)?;
        let directory = directory.ok_or_else(|| SignError::NoDirectory(path.to_owned()))?;
        let excluded = environment_excludes(&directory);
        let filter = environment_filter(&excluded, &boundary);
        let payload = current_payload(&directory, &filter, &name)?;
        let manifest = path.join(MANIFEST);
        if is_signed(&directory, &payload, ENVIRONMENT, key)? {
            return Ok((manifest, SignOutcome::Unchanged));
        }
        let outcome = write_manifest(manifest.clone(), &payload, ENVIRONMENT, key)?;
        Ok((manifest, outcome))
    }

    /// Verifies the nearest signed environment that contains a directory. None if there is none.
    pub fn verify_environment(
        &self,
        inside: &Path,
        trust: &Trust<'_>,
    ) -> Result<Option<LockedEnvironment>, ItemError> {
        for path in inside.ancestors() {
            let Ok(DirLocation { name, boundary, .. }) = self.locate_dir(path) else {
                return Ok(None);
            };
            if !path.join(MANIFEST).is_file() {
                continue;
            }
            let Some(directory) = Directory::open(path)? else {
                return Ok(None);
            };
            let bytes = directory.read(MANIFEST)?.unwrap_or_default();
            let manifest = Manifest::parse(&bytes);
            if manifest
                .as_ref()
                .is_ok_and(|manifest| !manifest.is_for(ENVIRONMENT))
            {
                return Ok(None);
            }
            let checked = manifest.and_then(|manifest| {
                manifest.verify(ENVIRONMENT, trust)?;
                let entries = manifest.entries(&name)?;
                Ok((entries, Hash::digest(manifest.payload)))
            });
            let excluded = environment_excludes(&directory);
            let scan = directory.scan(&environment_filter(&excluded, &boundary))?;
            let checked = checked.and_then(|(entries, hash)| {
                without_deviations(compare(&directory, &scan, &entries, &self.parse_cache))?;
                Ok(hash)
            });
            let hash = checked.map_err(|problem| {
                let item = path.display().to_string();
                let argument = format!("--manifest {}", shell_word(path));
                let error = IntegrityError::new(
                    item,
                    path.join(MANIFEST),
                    Some(Space::Project),
                    problem,
                    None,
                );
                ItemError::Integrity(Box::new(error.with_sign_argument(&argument)))
            })?;
            let path = path.to_owned();
            return Ok(Some(LockedEnvironment { path, hash }));
        }
        Ok(None)
    }

    /// Locates a directory in a project or a space. Fails for a directory outside both, for one
    /// that contains a space, and for `.ai` itself.
    fn locate_dir(&self, dir: &Path) -> Result<DirLocation<'_>, SignError> {
        let outside = || SignError::OutsideProject(dir.to_owned());
        let resolve = |path: &Path| {
            let real = path.canonicalize().at("resolve", path);
            real.map_err(SpaceError::from)
        };
        let utf8 = |inner: &Path| {
            let name = inner.to_str().map(str::to_owned);
            name.ok_or_else(|| SpaceError::NonUtf8Name(dir.to_owned()))
        };
        let path = std::path::absolute(dir).at("resolve", dir);
        let path = path.map_err(SpaceError::from)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(outside());
        };
        let real = resolve(parent)?.join(name);
        for root in self.spaces.roots() {
            let Some(space) = root.as_dir() else {
                continue;
            };
            let real_space = resolve(space)?;
            for (path, space) in [(&path, space), (&real, real_space.as_path())] {
                let boundary = space.parent().ok_or_else(outside)?;
                let name = match (path.strip_prefix(space), path.strip_prefix(boundary)) {
                    (Ok(inner), _) if inner.as_os_str().is_empty() => {
                        return Err(SignError::IsSpace(dir.to_owned()));
                    }
                    (Ok(inner), _) => utf8(inner)?,
                    (Err(_), Ok(inner)) if !space.starts_with(path) => {
                        format!("../{}", utf8(inner)?)
                    }
                    (Err(_), Ok(_)) => {
                        return Err(SignError::ContainsSpace {
                            directory: dir.to_owned(),
                            space: space.to_owned(),
                        });
                    }
                    (Err(_), Err(_)) => continue,
                };
                let boundary = real_space.parent().ok_or_else(outside)?.to_owned();
                return Ok(DirLocation {
                    root,
                    name,
                    boundary,
                });
            }
        }
        Err(outside())
    }
}

fn without_deviations(deviations: Vec<(String, Deviation)>) -> Result<(), IntegrityProblem> {
    if deviations.is_empty() {
        return Ok(());
    }
    Err(IntegrityProblem::Files(deviations))
}

/// Whether a key has already signed exactly this payload as the manifest of a directory.
fn is_signed(
    directory: &Directory,
    payload: &str,
    purpose: Purpose,
    key: &SigningKey,
) -> Result<bool, SpaceError> {
    let there = directory.read(MANIFEST)?.unwrap_or_default();
    let there = Manifest::parse(&there);
    Ok(there.is_ok_and(|it| it.payload == payload && it.is_signed_by(key, purpose)))
}

/// The location of a directory that has a manifest.
struct DirLocation<'l> {
    root: &'l Root,
    /// Relative to `.ai/`; starts with `../` outside of it.
    name: String,
    /// The resolved parent directory of `.ai/`.
    boundary: PathBuf,
}

/// Whether a directory is `tools` or inside it.
fn is_tools(name: &str) -> bool {
    name == "tools" || name.starts_with("tools/")
}

/// Whether a manifest lists a file with other content. An item that is reached through a link is
/// not listed as a file.
fn differs(listed: Option<&Entry>, bytes: &[u8]) -> bool {
    matches!(listed, Some(Entry::File(hash)) if *hash != Hash::digest(bytes))
}

/// Excludes bytecode from Python environments: Python rewrites it on every run, and the built-in
/// runtimes never read it.
fn environment_excludes(directory: &Directory) -> Vec<String> {
    let is_python = directory.path().join(PYVENV).is_file();
    let excluded = is_python.then(|| "__pycache__".to_owned());
    excluded.into_iter().collect()
}

fn environment_filter<'a>(exclude_dirs: &'a [String], boundary: &'a Path) -> Filter<'a> {
    Filter {
        recursive: true,
        exclude_dirs,
        nested_manifests: false,
        links: Links::NotInto(boundary),
    }
}

/// Opens the directory of a scope and computes the payload of its manifest.
fn unsigned_manifest(root: &Root, scope: &Scope) -> Result<(Directory, String), SignError> {
    let missing = || SpaceError::ChangedWhileReading(root.path_to(&scope.dir));
    let directory = Directory::open_in(root, &scope.dir)?.ok_or_else(missing)?;
    // Tools of several runtimes may share the directory, so entries of an existing manifest
    // stay listed.
    let before = directory.read(MANIFEST)?.unwrap_or_default();
    let before = Manifest::parse(&before).and_then(|before| before.entries(&scope.dir));
    let before = before.unwrap_or_default();
    let is_listed = |dir: &String| {
        let names = before.keys().flat_map(|path| path.split('/').rev().skip(1));
        names.into_iter().any(|name| name == dir)
    };
    let mut scope = scope.clone();
    scope.recursive |= before.keys().any(|path| path.contains('/'));
    scope.exclude_dirs.retain(|dir| !is_listed(dir));
    let payload = current_payload(&directory, &scope.filter(), &scope.dir)?;
    Ok((directory, payload))
}

/// The payload of a manifest for the current content of a directory.
fn current_payload(
    directory: &Directory,
    filter: &Filter<'_>,
    name: &str,
) -> Result<String, SignError> {
    let scan = directory.scan(filter)?;
    if !scan.refused.is_empty() {
        return Err(SignError::Unlistable {
            directory: directory.path().to_owned(),
            refused: scan.refused,
        });
    }
    let entries = current_entries(directory, &scan);
    if let Some(path) = scan
        .entries
        .keys()
        .find(|path| !entries.contains_key(*path))
    {
        Err(SpaceError::ChangedWhileReading(directory.path().join(path)))?;
    }
    Ok(payload(name, &entries))
}

/// The current entries of a directory. Unreadable files are left out.
fn current_entries(directory: &Directory, scan: &Scan) -> Entries {
    let names: Vec<_> = scan.entries.iter().collect();
    let entries = parallel(&names, &|_| (), |(path, name)| {
        let entry = match name {
            DirEntry::File(state) => Entry::File(directory.hash(path, state, false).ok()?.0),
            DirEntry::Link(target) => Entry::Link(target.clone()),
        };
        Some(((*path).clone(), entry))
    });
    entries.into_iter().flatten().collect()
}

/// All differences between a directory and the expected entries, sorted by path.
pub(crate) fn compare(
    directory: &Directory,
    scan: &Scan,
    expected: &Entries,
    parse_cache: &ParseCache,
) -> Vec<(String, Deviation)> {
    let mut deviations: BTreeMap<_, _> = scan.refused.iter().cloned().collect();
    let mut files = Vec::new();
    let (mut bytes, mut state) = (0, Hasher::default());
    for (path, name) in &scan.entries {
        match (name, expected.get(path)) {
            (DirEntry::File(identity), Some(Entry::File(hash))) => {
                bytes += identity.size;
                state.update(path.as_bytes());
                state.update(&[0]);
                state.update(hash.as_bytes());
                state.update(format!("{identity:?}").as_bytes());
                files.push((path, identity, *hash));
            }
            (DirEntry::Link(target), Some(Entry::Link(listed))) if target == listed => {}
            (_, Some(_)) => {
                deviations.insert(path.clone(), Deviation::Changed);
            }
            (_, None) => {
                deviations.insert(path.clone(), Deviation::Added);
            }
        }
    }
    for path in expected.keys() {
        if !scan.entries.contains_key(path) && !deviations.contains_key(path) {
            deviations.insert(path.clone(), Deviation::Missing);
        }
    }
    // The cache stores only `Ok`. If a file could still change without a new state, the result is
    // an error without deviations, which is not cached.
    let is_cached = bytes >= CACHED_BYTES || files.len() >= CACHED_FILES;
    let hash_all = || {
        let outcomes = parallel(&files, &|_| (), |(path, identity, listed)| match directory
            .hash(path, identity, is_cached)
        {
            Ok((hash, is_stable)) if hash == *listed => Ok(is_stable),
            Ok(_) => Err(((*path).clone(), Deviation::Changed)),
            Err(_) => Err(((*path).clone(), Deviation::Unreadable)),
        });
        let are_stable = outcomes.iter().all(|outcome| *outcome == Ok(true));
        let changed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        if are_stable { Ok(()) } else { Err(changed) }
    };
    let hashed = if is_cached {
        parse_cache.get("directory", &state.finish().0, hash_all)
    } else {
        hash_all()
    };
    deviations.extend(hashed.err().into_iter().flatten());
    deviations.into_iter().collect()
}

fn all_names(scan: &Scan) -> Vec<String> {
    let refused = scan.refused.iter().map(|(path, _)| path);
    scan.entries.keys().chain(refused).cloned().collect()
}

fn write_manifest(
    path: PathBuf,
    payload: &str,
    purpose: Purpose,
    key: &SigningKey,
) -> Result<SignOutcome, SignError> {
    let text = manifest::sign(payload, purpose, key);
    durable::write(&path, text.as_bytes(), 0o644, IfExists::Replace)
        .map_err(|source| SignError::Write { path, source })?;
    Ok(SignOutcome::Signed)
}
