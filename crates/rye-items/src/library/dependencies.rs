//! The files that a tool brings with it: all of them must verify before it runs.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use lillux::Hash;
use lillux::hash::Hasher;
use rustix::fs::FileType;

use super::beside::verify_beside;
use super::{Good, ItemError, Library};
use crate::id::ItemKind;
use crate::integrity::{IntegrityError, Problem};
use crate::lookup;
use crate::signature::SignatureError;
use crate::space::{Entry, Observer, Root, Space, SpaceError};
use crate::trust::Trust;
use crate::verify::Seen;

/// Which files of a folder are dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The folder, relative to the root's `.ai/`; within `tools`.
    pub folder: String,
    /// Whether folders in it count too.
    pub recursive: bool,
    /// With their dots.
    pub extensions: Vec<String>,
    /// Names of folders that do not count.
    pub exclude_dirs: Vec<String>,
}

impl Scope {
    fn wants(&self, path: &str) -> bool {
        let Some(inner) = path
            .strip_prefix(&self.folder)
            .and_then(|rest| rest.strip_prefix('/'))
        else {
            return false;
        };
        let (folders, name) = inner.rsplit_once('/').unwrap_or(("", inner));
        let listed = self
            .extensions
            .iter()
            .any(|extension| name.ends_with(extension.as_str()));
        let excluded = folders
            .split('/')
            .any(|folder| self.exclude_dirs.iter().any(|dir| dir == folder));
        listed && !excluded && (self.recursive || folders.is_empty())
    }
}

/// Walks what is in a scope: hidden files too, since a program can read them,
/// and no folder that does not count.
struct Within<'s>(&'s Scope);

impl Observer for Within<'_> {
    fn folder(&mut self, _: BorrowedFd<'_>) {}
    fn loose_link(&mut self) {}

    fn passes_by(&self, name: &str, kind: FileType) -> bool {
        let Self(scope) = self;
        match kind {
            FileType::RegularFile => false,
            FileType::Directory if !scope.recursive => true,
            _ => scope.exclude_dirs.iter().any(|dir| dir == name),
        }
    }
}

/// What was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependencies {
    /// How many files.
    pub files: usize,
    /// How many of them do not verify and were let pass, in development mode.
    pub waived: usize,
    /// The hash over all their paths and hashes.
    pub hash: Hash,
}

impl Library {
    /// Verifies every dependency in a scope. The first that does not hold is the
    /// error, unless it is let pass in development mode; and so is a link that leads
    /// out of the scope. A file in a state in which this process has verified it is
    /// only looked at.
    pub fn verify_dependencies(
        &self,
        root: &Root,
        scope: &Scope,
        trust: &Trust<'_>,
    ) -> Result<Dependencies, ItemError> {
        let real_scope = root.real_path(&scope.folder)?;
        let mut known = Known::new(self, trust);
        let (mut hashes, mut unknown) = (BTreeMap::new(), Vec::new());
        let mut waived = 0;
        let mut hash_of = |path: &str, outcome: Result<Good, ItemError>| match outcome {
            Err(ItemError::Integrity(_)) if self.dev_mode && root.space() != Space::System => {
                waived += 1;
                let raw = root.read(path)?;
                Ok(Hash::of(raw.map(|raw| raw.bytes).unwrap_or_default()))
            }
            other => other.map(|good| good.hash),
        };
        for entry in root.observed_walk(&scope.folder, &mut Within(scope)) {
            let entry = entry?;
            if !scope.wants(&entry.path) {
                continue;
            }
            if entry.linked
                && let (Some(scope), Some(real)) = (&real_scope, root.real_path(&entry.path)?)
                && !real.starts_with(scope)
            {
                return Err(SpaceError::LeavesSpace(root.path_of(&entry.path)))?;
            }
            if let Some(hash) = known.hash(&entry) {
                hashes.insert(entry.path, hash);
            } else if self.is_signed_beside(&entry.path) {
                let hash = hash_of(&entry.path, verify_beside(root, &entry.path, trust))?;
                hashes.insert(entry.path, hash);
            } else if let Some(found) =
                lookup::name_of(root, ItemKind::Tool, &entry.path, &self.extractors)
            {
                unknown.push((entry, found));
            } else {
                let hash = hash_of(&entry.path, Err(no_name(root, &entry.path)))?;
                hashes.insert(entry.path, hash);
            }
        }
        if !unknown.is_empty() {
            for (found, outcome) in self.verify_all(unknown, trust, &|_| ()) {
                let hash = hash_of(&found.relative, outcome)?;
                hashes.insert(found.relative, hash);
            }
        }
        let mut hasher = Hasher::default();
        for (path, hash) in &hashes {
            hasher.update(path.as_bytes());
            hasher.update(hash.as_bytes());
        }
        Ok(Dependencies {
            files: hashes.len(),
            waived,
            hash: hasher.finish().0,
        })
    }
}

/// What this process knows of files, and whether it still counts.
struct Known<'a> {
    library: &'a Library,
    trust: &'a Trust<'a>,
    /// The keys that were asked for, by their hashes.
    keys: Vec<(Hash, bool)>,
}

impl<'a> Known<'a> {
    fn new(library: &'a Library, trust: &'a Trust<'a>) -> Self {
        Self {
            library,
            trust,
            keys: Vec::new(),
        }
    }

    /// The hash of a file that was verified in this state, by a key that counts now.
    fn hash(&mut self, entry: &Entry) -> Option<Hash> {
        let extension = &entry.path[entry.path.rfind('.')?..];
        let rule = self.library.extractors.rule(extension)?;
        let states = &self.library.memory.states;
        let seen = states.get(entry.identity.as_ref()?, &rule.comment, &entry.path)?;
        self.counts(&seen).then_some(seen.hash)
    }

    fn counts(&mut self, seen: &Seen) -> bool {
        if let Some((_, counts)) = self.keys.iter().find(|(key, _)| *key == seen.key) {
            return *counts;
        }
        let standing = self.trust.standing(seen.fingerprint());
        let counts = standing.is_ok_and(|signer| Seen::key_hash(&signer.key) == seen.key);
        self.keys.push((seen.key, counts));
        counts
    }
}

/// A file whose name is none that an item can have, so that nothing vouches for it.
fn no_name(root: &Root, relative: &str) -> ItemError {
    let path: PathBuf = root.path_of(relative);
    let item = path.display().to_string();
    let problem = Problem::Line(SignatureError::Unsigned);
    let error = IntegrityError::new(item, path, Some(root.space()), problem, None);
    ItemError::Integrity(Box::new(error))
}
