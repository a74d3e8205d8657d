//! The items of a project, the user and the system, as one library.
//!
//! ```no_run
//! use rye_items::{Embedded, Library, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let library = Library::open(&Options {
//!     project: Some("/work/project".as_ref()),
//!     ..Options::new(&Embedded::EMPTY)
//! })?;
//! let tool = library.load(&"my/tool".parse()?)?; // found, read once, verified
//! println!("{} bytes, signed by {:?}", tool.bytes().len(), tool.signer);
//! # Ok(())
//! # }
//! ```

mod dependencies;
mod many;
mod path;
mod reader;
mod sign;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::hash::Hasher;
use lillux::keys::Fingerprint;

use crate::comment::Comment;
use crate::derived::Derived;
use crate::id::{ItemKind, ItemRef};
use crate::integrity::{IntegrityError, Problem};
use crate::item::{Coverage, Item, Verified};
use crate::lookup::{self, Found, LookupError};
use crate::memory::Memory;
use crate::metadata::{self, Extractors, Metadata, MetadataError};
use crate::signature::{self, Binding, ITEM};
use crate::space::{Embedded, Entry, RawFile, Root, Space, SpaceError, Spaces};
use crate::trust::{Ignored, Standing, Trust};
use crate::verify::{self, Form, Signed};

pub(crate) use dependencies::compare;
pub use dependencies::{Dependencies, EXCLUDED_DIRS, LockedEnvironment, Owner, Scope};
pub use many::{Checked, Good};
pub use path::PathItem;
pub use sign::{SignError, SignOutcome};

/// Where the extractor table is, relative to `.ai/`.
const EXTRACTORS: &str = "tools/rye/core/extractors/tool_extractor.yaml";

/// Which spaces, and how strictly.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The folder of the project.
    pub project: Option<&'a Path>,
    /// The folder that has the user's space: their home.
    pub user: Option<&'a Path>,
    /// Folders with further bundles of the system space, before the embedded one.
    pub bundles: &'a [PathBuf],
    /// The bundle inside the program.
    pub embedded: &'static Embedded,
    /// The folder for what is derived from files; without one, or with one that
    /// others can write to, only slower.
    pub cache: Option<&'a Path>,
    /// What this process has found out before; without one, it begins anew.
    pub memory: Option<&'a Arc<Memory>>,
    /// Let project and user items pass that do not verify, with a warning on them.
    pub dev_mode: bool,
}

impl Options<'_> {
    /// The system space alone.
    pub fn new(embedded: &'static Embedded) -> Self {
        Self {
            project: None,
            user: None,
            bundles: &[],
            embedded,
            cache: None,
            memory: None,
            dev_mode: false,
        }
    }
}

/// An item that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// Its name leads nowhere, or to several files.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// Its file cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// Its bytes are not vouched for.
    #[error(transparent)]
    Integrity(Box<IntegrityError>),
    /// What it says about itself cannot be read.
    #[error("{}: {source}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: Box<MetadataError>,
    },
}

/// The spaces, and how their files are read. Made for one call: cheap to open,
/// and what changed on the disk is seen by the next. One that noted what it looked
/// at serves another call as long as that [is still so](Self::is_still_so).
#[derive(Debug)]
pub struct Library {
    spaces: Spaces,
    extractors: Arc<Extractors>,
    /// Of all tables that the extractors were read from.
    extractors_hash: Hash,
    ignored: Vec<Ignored>,
    /// What was found out about keys on the way.
    standings: HashMap<Fingerprint, Standing>,
    memory: Arc<Memory>,
    derived: Derived,
    dev_mode: bool,
}

impl Library {
    /// Opens the spaces and reads the extractor tables.
    pub fn open(options: &Options<'_>) -> Result<Self, ItemError> {
        Self::open_as(options, false)
    }

    /// The same for a call whose outcome is kept: what it looks at is noted, until it
    /// is [`settled`](Self::settled).
    pub fn open_noting(options: &Options<'_>) -> Result<Self, ItemError> {
        Self::open_as(options, true)
    }

    fn open_as(options: &Options<'_>, noting: bool) -> Result<Self, ItemError> {
        let Options {
            project,
            user,
            bundles,
            embedded,
            cache,
            memory,
            dev_mode,
        } = *options;
        let spaces = Spaces::open(project, user, bundles, embedded)?;
        if noting {
            spaces.begin_noting();
        }
        let mut ignored = Vec::new();
        let memory = memory.cloned().unwrap_or_default();
        let derived = Derived::new(cache);
        let trust = Trust::remembering(&spaces, Arc::clone(&memory));
        let (extractors, extractors_hash) =
            read_extractors(&spaces, &trust, &derived, &mut ignored)?;
        let standings = trust.into_known();
        Ok(Self {
            spaces,
            extractors,
            extractors_hash,
            ignored,
            standings,
            memory,
            derived,
            dev_mode,
        })
    }

    /// Ends the noting, with what was found out about keys meanwhile.
    #[must_use]
    pub fn settled(mut self, standings: HashMap<Fingerprint, Standing>) -> Self {
        self.spaces.end_noting();
        self.standings = standings;
        self
    }

    /// Whether a library that was settled is as good as one opened now: all that was
    /// looked at before it settled would be found the same.
    pub fn is_still_so(&self) -> bool {
        self.spaces.is_as_noted()
    }

    /// The spaces.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Which file goes to which parser.
    pub fn extractors(&self) -> &Extractors {
        &self.extractors
    }

    /// Files that would have changed how others are read, and do not count.
    pub fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    /// The keys of the spaces.
    pub fn trust(&self) -> Trust<'_> {
        Trust::remembering(&self.spaces, Arc::clone(&self.memory))
    }

    /// The same for one call that opened the library for itself: a key that was
    /// looked up then is not looked up again.
    pub fn trust_since_opened(&self) -> Trust<'_> {
        self.trust().knowing(self.standings.clone())
    }

    /// Finds an item's file: project, user, system.
    pub fn find(&self, reference: &ItemRef) -> Result<Found<'_>, LookupError> {
        lookup::find(&self.spaces, &self.extractors, reference)
    }

    /// What a found item shadows: the files of the same name further down.
    pub fn shadowed(&self, found: &Found<'_>) -> Vec<Found<'_>> {
        let after = self
            .spaces
            .roots()
            .skip_while(|root| !std::ptr::eq(*root, found.root));
        after
            .skip(1)
            .filter_map(|root| lookup::find_in(root, &self.extractors, &found.reference).ok()?)
            .collect()
    }

    /// All files of a kind, space by space, shadowed ones included.
    pub fn list(&self, kind: ItemKind) -> Vec<Result<(Entry, Found<'_>), SpaceError>> {
        self.list_within(kind, |_| true)
    }

    /// The same of some spaces: what is wrong with others is not told.
    pub fn list_within(
        &self,
        kind: ItemKind,
        within: impl Fn(Space) -> bool,
    ) -> Vec<Result<(Entry, Found<'_>), SpaceError>> {
        let roots = self.spaces.roots().filter(|root| within(root.space()));
        roots
            .flat_map(|root| lookup::list(root, kind, &self.extractors))
            .collect()
    }

    /// Finds an item, reads it once, and verifies what was read.
    pub fn load(&self, reference: &ItemRef) -> Result<Verified<Item>, ItemError> {
        let found = self.find(reference)?;
        self.verify(&found, &self.trust())
    }

    /// Reads a found item once, and verifies what was read.
    pub fn verify(
        &self,
        found: &Found<'_>,
        trust: &Trust<'_>,
    ) -> Result<Verified<Item>, ItemError> {
        let form = self.form_of(found);
        if let Some(item) = self.verify_embedded(found, &form, trust) {
            return Ok(item);
        }
        let raw = read(found)?;
        let checked = verify::check(&raw.bytes, &form, trust);
        let space = found.root.space();
        match checked {
            Ok(signed) => Ok(verified(found, raw, signed)),
            Err(problem) if self.dev_mode && space != Space::System => {
                let error = integrity_error(found, problem, &raw.bytes);
                Ok(waived(found, raw, error))
            }
            Err(problem) => {
                let error = integrity_error(found, problem, &raw.bytes);
                Err(ItemError::Integrity(Box::new(error)))
            }
        }
    }

    /// An item inside the program, whose bytes need be hashed only once; none if it
    /// is not one, or does not verify.
    fn verify_embedded(
        &self,
        found: &Found<'_>,
        form: &Form,
        trust: &Trust<'_>,
    ) -> Option<Verified<Item>> {
        let file = found.root.as_embedded()?.get(&found.relative)?;
        let known = self.memory.embedded.get(file, form).ok()?;
        let signer = known.judge(trust).ok()?;
        let (bytes, content) = (Arc::clone(&known.bytes), Arc::clone(&known.content));
        let hash = known.claim.line.hash;
        Some(Verified::new(Item {
            coverage: known.claim.coverage,
            signature: Some(known.claim.line.clone()),
            signer: Some(signer),
            ..unverified(found, None, hash, bytes, content)
        }))
    }

    /// What an item says about itself.
    pub fn metadata(&self, item: &Verified<Item>) -> Result<Arc<Metadata>, ItemError> {
        let Item {
            extension,
            reference,
            ..
        } = &**item;
        // The bytes are those of the hash and one line more, which is where it always
        // is: a file of the same hash and length has every value at the same place.
        let content = match item.waived {
            None => item.hash,
            Some(_) => Hash::of(item.bytes()),
        };
        let mut hasher = Hasher::default();
        hasher.update(content.as_bytes());
        hasher.update(&item.bytes().len().to_le_bytes());
        hasher.update(self.extractors_hash.as_bytes());
        hasher.update(reference.kind.as_str().as_bytes());
        hasher.update(extension.as_bytes());
        let (hash, _) = hasher.finish();
        let read = || metadata::extract(item.bytes(), extension, reference.kind, &self.extractors);
        let kept = || self.derived.get("metadata", &hash, read).map(Arc::new);
        self.memory
            .metadata
            .get(hash, kept)
            .map_err(|source| ItemError::Metadata {
                path: item.path.clone(),
                source: Box::new(source),
            })
    }

    /// A file of configuration, if it is there and counts. The user's own counts
    /// as it is; in another space it must verify, and what does not is told.
    pub fn config(
        &self,
        root: &Root,
        relative: &str,
        trust: &Trust<'_>,
    ) -> Result<Option<Vec<u8>>, Ignored> {
        let path = root.path_of(relative);
        let ignored = |why: String| Ignored::new(path.clone(), why);
        let Some(raw) = root.read(relative).map_err(|e| ignored(e.to_string()))? else {
            return Ok(None);
        };
        if root.space() != Space::User {
            check_config(&raw, relative, trust).map_err(|problem| ignored(problem.to_string()))?;
        }
        Ok(Some(raw.bytes))
    }

    fn form_of(&self, found: &Found<'_>) -> Form {
        self.form(&found.extension, found.reference.kind, &found.relative)
    }

    fn form(&self, extension: &str, kind: ItemKind, relative: &str) -> Form {
        let rule = self.extractors.rule(extension);
        Form {
            comment: rule.map_or(Comment::HASH, |rule| rule.comment.clone()),
            partial: kind == ItemKind::Directive,
            binding: Some(Binding::of(relative)),
        }
    }
}

/// A problem gets its item and its place.
fn integrity_error(found: &Found<'_>, problem: Problem, bytes: &[u8]) -> IntegrityError {
    let space = Some(found.root.space());
    IntegrityError::new(
        found.reference.to_string(),
        found.path(),
        space,
        problem,
        Some(bytes),
    )
}

fn read(found: &Found<'_>) -> Result<RawFile, ItemError> {
    let raw = found.root.read(&found.relative)?;
    // It was there a moment ago.
    Ok(raw.ok_or_else(|| SpaceError::Changing(found.path()))?)
}

fn check_config(raw: &RawFile, relative: &str, trust: &Trust<'_>) -> Result<Signed, Problem> {
    verify::check(&raw.bytes, &Form::config(ITEM, relative), trust)
}

/// The tables of all spaces, the more specific over the more general. One that
/// does not verify is not used, wherever it is.
fn read_extractors(
    spaces: &Spaces,
    trust: &Trust<'_>,
    derived: &Derived,
    ignored: &mut Vec<Ignored>,
) -> Result<(Arc<Extractors>, Hash), ItemError> {
    let mut tables = Vec::new();
    let mut hasher = Hasher::default();
    let mut roots: Vec<_> = spaces.roots().collect();
    roots.reverse();
    for root in roots {
        if let Some(embedded) = root.as_embedded()
            && let Some(file) = embedded.get(EXTRACTORS)
            && let Ok(known) = trust
                .memory()
                .embedded
                .get(file, &Form::config(ITEM, EXTRACTORS))
            && known.judge(trust).is_ok()
            && let Ok(table) = table_of(file.bytes, known.claim.line.hash, trust, derived)
        {
            tables.push(table);
            hasher.update(known.claim.line.hash.as_bytes());
            continue;
        }
        let path = || root.path_of(EXTRACTORS);
        let raw = match root.read(EXTRACTORS) {
            Ok(Some(raw)) => raw,
            Ok(None) => continue,
            // A project cannot make a pipe of it and so stop every command.
            Err(error) if root.space() == Space::Project => {
                ignored.push(Ignored::new(path(), error.to_string()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let read = check_config(&raw, EXTRACTORS, trust)
            .map_err(|problem| problem.to_string())
            .and_then(|signed| {
                let hash = signed.line.hash;
                Ok((table_of(&raw.bytes, hash, trust, derived)?, hash))
            });
        match read {
            Ok((table, hash)) => {
                tables.push(table);
                hasher.update(hash.as_bytes());
            }
            Err(why) => ignored.push(Ignored::new(path(), why)),
        }
    }
    let all = match tables.as_slice() {
        [one] => Arc::clone(one),
        several => {
            let mut all = Extractors::default();
            for table in several {
                all.merge(Extractors::clone(table));
            }
            Arc::new(all)
        }
    };
    Ok((all, hasher.finish().0))
}

/// The table that a file holds, whose content has this hash.
fn table_of(
    bytes: &[u8],
    hash: Hash,
    trust: &Trust<'_>,
    derived: &Derived,
) -> Result<Arc<Extractors>, String> {
    let make = || Extractors::from_yaml(bytes).map_err(|e| e.to_string());
    let (read, write) = (Extractors::from_kept, Extractors::to_kept);
    let kept = || derived.get_as("extractors", &hash, read, write, make);
    let kept = || kept().map(Arc::new);
    trust.memory().extractors.get(hash, kept)
}

fn verified(found: &Found<'_>, raw: RawFile, signed: Signed) -> Verified<Item> {
    let (bytes, content): (Arc<[u8]>, Arc<[u8]>) = match signed.element {
        None => {
            let content = signature::unsigned(&raw.bytes).into();
            (raw.bytes.into(), content)
        }
        Some(range) => {
            let element: Arc<[u8]> = raw.bytes[range].into();
            (Arc::clone(&element), element)
        }
    };
    let hash = signed.line.hash;
    Verified::new(Item {
        coverage: signed.coverage,
        signature: Some(signed.line),
        signer: Some(signed.key),
        ..unverified(found, raw.identity, hash, bytes, content)
    })
}

fn waived(found: &Found<'_>, raw: RawFile, error: IntegrityError) -> Verified<Item> {
    let content: Arc<[u8]> = signature::unsigned(&raw.bytes).into();
    let hash = Hash::of(&content);
    Verified::new(Item {
        waived: Some(error),
        ..unverified(found, raw.identity, hash, raw.bytes.into(), content)
    })
}

fn unverified(
    found: &Found<'_>,
    identity: Option<crate::space::FileIdentity>,
    hash: Hash,
    bytes: Arc<[u8]>,
    content: Arc<[u8]>,
) -> Item {
    Item {
        reference: found.reference.clone(),
        space: found.root.space(),
        bundle: found.root.bundle().map(str::to_owned),
        path: found.path(),
        extension: found.extension.clone(),
        coverage: Coverage::Whole,
        identity,
        hash,
        signature: None,
        signer: None,
        waived: None,
        bytes,
        content,
    }
}
