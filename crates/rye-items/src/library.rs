//! The items of a project, the user and the system, as one library.
//!
//! ```no_run
//! use rye_items::{EmbeddedBundle, Library, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let library = Library::open(&Options {
//!     project: Some("/work/project".as_ref()),
//!     ..Options::new(&EmbeddedBundle::EMPTY)
//! })?;
//! let tool = library.load(&"my/tool".parse()?)?; // found, read once, verified
//! println!("{} bytes, signed by {:?}", tool.bytes().len(), tool.signer);
//! # Ok(())
//! # }
//! ```

mod dependencies;
mod path;
mod reader;
mod sign;
mod verify_batch;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::hash::Hasher;
use lillux::keys::Fingerprint;

use crate::comment::CommentStyle;
use crate::id::{ItemKind, ItemRef};
use crate::integrity::{IntegrityError, IntegrityProblem};
use crate::item::{Coverage, Item, Verified};
use crate::lookup::{self, ItemFile, LookupError};
use crate::metadata::{self, Extractors, Metadata, MetadataError};
use crate::parse_cache::ParseCache;
use crate::process_cache::ProcessCache;
use crate::signature::{self, Binding, ITEM};
use crate::space::{EmbeddedBundle, Entry, RawFile, Root, Space, SpaceError, Spaces};
use crate::trust::{IgnoredFile, KeyStatus, Trust};
use crate::verify::{self, SignatureFormat, VerifiedLine};

pub(crate) use dependencies::compare;
pub use dependencies::{Dependencies, EXCLUDED_DIRS, LockedEnvironment, Owner, Scope};
pub use path::PathItem;
pub use sign::{SignError, SignOutcome};
pub use verify_batch::{FileVerification, VerifiedSignature};

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
    pub embedded: &'static EmbeddedBundle,
    /// The folder for what is parse_cache from files; without one, or with one that
    /// others can write to, only slower.
    pub cache: Option<&'a Path>,
    /// What this process has found out before; without one, it begins anew.
    pub process_cache: Option<&'a Arc<ProcessCache>>,
    /// Let project and user items pass that do not verify, with a warning on them.
    pub dev_mode: bool,
}

impl Options<'_> {
    /// The system space alone.
    pub fn new(embedded: &'static EmbeddedBundle) -> Self {
        Self {
            project: None,
            user: None,
            bundles: &[],
            embedded,
            cache: None,
            process_cache: None,
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
/// at serves another call as long as that [is still so](Self::is_fresh).
#[derive(Debug)]
pub struct Library {
    spaces: Spaces,
    extractors: Arc<Extractors>,
    /// Of all tables that the extractors were read from.
    extractors_hash: Hash,
    ignored: Vec<IgnoredFile>,
    /// What was found out about keys on the way.
    key_statuses: HashMap<Fingerprint, KeyStatus>,
    process_cache: Arc<ProcessCache>,
    parse_cache: ParseCache,
    dev_mode: bool,
}

impl Library {
    /// Opens the spaces and reads the extractor tables.
    pub fn open(options: &Options<'_>) -> Result<Self, ItemError> {
        Self::open_with(options, false)
    }

    /// The same for a call whose outcome is kept: what it looks at is noted, until it
    /// is [`settled`](Self::settled).
    pub fn open_recording(options: &Options<'_>) -> Result<Self, ItemError> {
        Self::open_with(options, true)
    }

    fn open_with(options: &Options<'_>, recording: bool) -> Result<Self, ItemError> {
        let Options {
            project,
            user,
            bundles,
            embedded,
            cache,
            process_cache,
            dev_mode,
        } = *options;
        let spaces = Spaces::open(project, user, bundles, embedded)?;
        if recording {
            spaces.start_recording();
        }
        let mut ignored = Vec::new();
        let process_cache = process_cache.cloned().unwrap_or_default();
        let parse_cache = ParseCache::new(cache);
        let trust = Trust::with_cache(&spaces, Arc::clone(&process_cache));
        let (extractors, extractors_hash) =
            read_extractors(&spaces, &trust, &parse_cache, &mut ignored)?;
        let key_statuses = trust.into_key_statuses();
        Ok(Self {
            spaces,
            extractors,
            extractors_hash,
            ignored,
            key_statuses,
            process_cache,
            parse_cache,
            dev_mode,
        })
    }

    /// Ends the noting, with what was found out about keys meanwhile.
    #[must_use]
    pub fn finish_recording(mut self, key_statuses: HashMap<Fingerprint, KeyStatus>) -> Self {
        self.spaces.finish_recording();
        self.key_statuses = key_statuses;
        self
    }

    /// Whether a library that was settled is as good as one opened now: all that was
    /// looked at before it settled would be found the same.
    pub fn is_fresh(&self) -> bool {
        self.spaces.is_unchanged()
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
    pub fn ignored(&self) -> &[IgnoredFile] {
        &self.ignored
    }

    /// The keys of the spaces.
    pub fn trust(&self) -> Trust<'_> {
        Trust::with_cache(&self.spaces, Arc::clone(&self.process_cache))
    }

    /// The same for one call that opened the library for itself: a key that was
    /// looked up then is not looked up again.
    pub fn trust_with_known_keys(&self) -> Trust<'_> {
        self.trust().with_known_keys(self.key_statuses.clone())
    }

    /// Finds an item's file: project, user, system.
    pub fn find(&self, reference: &ItemRef) -> Result<ItemFile<'_>, LookupError> {
        lookup::find(&self.spaces, &self.extractors, reference)
    }

    /// What a found item shadows: the files of the same name further down.
    pub fn shadowed(&self, found: &ItemFile<'_>) -> Vec<ItemFile<'_>> {
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
    pub fn list(&self, kind: ItemKind) -> Vec<Result<(Entry, ItemFile<'_>), SpaceError>> {
        self.list_within(kind, |_| true)
    }

    /// The same of some spaces: what is wrong with others is not told.
    pub fn list_within(
        &self,
        kind: ItemKind,
        within: impl Fn(Space) -> bool,
    ) -> Vec<Result<(Entry, ItemFile<'_>), SpaceError>> {
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
        found: &ItemFile<'_>,
        trust: &Trust<'_>,
    ) -> Result<Verified<Item>, ItemError> {
        let format = self.format_of(found);
        if let Some(item) = self.verify_embedded(found, &format, trust) {
            return Ok(item);
        }
        let raw = read(found)?;
        let checked = verify::check(&raw.bytes, &format, trust);
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
        found: &ItemFile<'_>,
        format: &SignatureFormat,
        trust: &Trust<'_>,
    ) -> Option<Verified<Item>> {
        let file = found.root.as_embedded()?.get(&found.relative)?;
        let known = self.process_cache.embedded.get(file, format).ok()?;
        let signer = known.verify(trust).ok()?;
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
            Some(_) => Hash::digest(item.bytes()),
        };
        let mut hasher = Hasher::default();
        hasher.update(content.as_bytes());
        hasher.update(&item.bytes().len().to_le_bytes());
        hasher.update(self.extractors_hash.as_bytes());
        hasher.update(reference.kind.as_str().as_bytes());
        hasher.update(extension.as_bytes());
        let (hash, _) = hasher.finish();
        let read = || metadata::extract(item.bytes(), extension, reference.kind, &self.extractors);
        let kept = || self.parse_cache.get("metadata", &hash, read).map(Arc::new);
        self.process_cache
            .metadata
            .get(hash, kept)
            .map_err(|source| ItemError::Metadata {
                path: item.path.clone(),
                source: Box::new(source),
            })
    }

    /// A file of configuration, if it is there and counts. The user's own counts
    /// as it is; in another space it must verify, and what does not is told.
    pub fn read_config(
        &self,
        root: &Root,
        relative: &str,
        trust: &Trust<'_>,
    ) -> Result<Option<Vec<u8>>, IgnoredFile> {
        let path = root.path_to(relative);
        let ignored = |why: String| IgnoredFile::new(path.clone(), why);
        let Some(raw) = root.read(relative).map_err(|e| ignored(e.to_string()))? else {
            return Ok(None);
        };
        if root.space() != Space::User {
            check_config(&raw, relative, trust).map_err(|problem| ignored(problem.to_string()))?;
        }
        Ok(Some(raw.bytes))
    }

    fn format_of(&self, found: &ItemFile<'_>) -> SignatureFormat {
        self.signature_format(&found.extension, found.reference.kind, &found.relative)
    }

    fn signature_format(&self, extension: &str, kind: ItemKind, relative: &str) -> SignatureFormat {
        let rule = self.extractors.rule(extension);
        SignatureFormat {
            comment: rule.map_or(CommentStyle::HASH, |rule| rule.comment.clone()),
            partial: kind == ItemKind::Directive,
            binding: Some(Binding::for_path(relative)),
        }
    }
}

/// A problem gets its item and its place.
fn integrity_error(
    found: &ItemFile<'_>,
    problem: IntegrityProblem,
    bytes: &[u8],
) -> IntegrityError {
    let space = Some(found.root.space());
    IntegrityError::new(
        found.reference.to_string(),
        found.path(),
        space,
        problem,
        Some(bytes),
    )
}

fn read(found: &ItemFile<'_>) -> Result<RawFile, ItemError> {
    let raw = found.root.read(&found.relative)?;
    // It was there a moment ago.
    Ok(raw.ok_or_else(|| SpaceError::ChangedWhileReading(found.path()))?)
}

fn check_config(
    raw: &RawFile,
    relative: &str,
    trust: &Trust<'_>,
) -> Result<VerifiedLine, IntegrityProblem> {
    verify::check(&raw.bytes, &SignatureFormat::config(ITEM, relative), trust)
}

/// The tables of all spaces, the more specific over the more general. One that
/// does not verify is not used, wherever it is.
fn read_extractors(
    spaces: &Spaces,
    trust: &Trust<'_>,
    parse_cache: &ParseCache,
    ignored: &mut Vec<IgnoredFile>,
) -> Result<(Arc<Extractors>, Hash), ItemError> {
    let mut tables = Vec::new();
    let mut hasher = Hasher::default();
    let mut roots: Vec<_> = spaces.roots().collect();
    roots.reverse();
    for root in roots {
        if let Some(embedded) = root.as_embedded()
            && let Some(file) = embedded.get(EXTRACTORS)
            && let Ok(known) = trust
                .cache()
                .embedded
                .get(file, &SignatureFormat::config(ITEM, EXTRACTORS))
            && known.verify(trust).is_ok()
            && let Ok(table) = table_of(file.bytes, known.claim.line.hash, trust, parse_cache)
        {
            tables.push(table);
            hasher.update(known.claim.line.hash.as_bytes());
            continue;
        }
        let path = || root.path_to(EXTRACTORS);
        let raw = match root.read(EXTRACTORS) {
            Ok(Some(raw)) => raw,
            Ok(None) => continue,
            // A project cannot make a pipe of it and so stop every command.
            Err(error) if root.space() == Space::Project => {
                ignored.push(IgnoredFile::new(path(), error.to_string()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let read = check_config(&raw, EXTRACTORS, trust)
            .map_err(|problem| problem.to_string())
            .and_then(|signed| {
                let hash = signed.line.hash;
                Ok((table_of(&raw.bytes, hash, trust, parse_cache)?, hash))
            });
        match read {
            Ok((table, hash)) => {
                tables.push(table);
                hasher.update(hash.as_bytes());
            }
            Err(why) => ignored.push(IgnoredFile::new(path(), why)),
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
    parse_cache: &ParseCache,
) -> Result<Arc<Extractors>, String> {
    let make = || Extractors::from_yaml(bytes).map_err(|e| e.to_string());
    let (read, write) = (Extractors::decode, Extractors::encode);
    let kept = || parse_cache.get_as("extractors", &hash, read, write, make);
    let kept = || kept().map(Arc::new);
    trust.cache().extractors.get(hash, kept)
}

fn verified(found: &ItemFile<'_>, raw: RawFile, signed: VerifiedLine) -> Verified<Item> {
    let (bytes, content): (Arc<[u8]>, Arc<[u8]>) = match signed.element {
        None => {
            let content = signature::strip_signature(&raw.bytes).into();
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

fn waived(found: &ItemFile<'_>, raw: RawFile, error: IntegrityError) -> Verified<Item> {
    let content: Arc<[u8]> = signature::strip_signature(&raw.bytes).into();
    let hash = Hash::digest(&content);
    Verified::new(Item {
        waived: Some(error),
        ..unverified(found, raw.identity, hash, raw.bytes.into(), content)
    })
}

fn unverified(
    found: &ItemFile<'_>,
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
