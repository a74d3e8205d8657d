//! The item library: finds, loads, verifies and signs the items of all spaces.
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

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::hash::Hasher;
use lillux::{Hash, PathError};

use crate::comment::CommentStyle;
use crate::id::{ItemKind, ItemRef};
use crate::integrity::{IntegrityError, IntegrityProblem};
use crate::item::{Coverage, Item, Verified};
use crate::lookup::{self, ItemFile, LookupError};
use crate::metadata::{self, Extractors, Metadata, MetadataError};
use crate::parse_cache::ParseCache;
use crate::process_cache::ProcessCache;
use crate::signature::{self, Binding, ITEM};
use crate::space::{EmbeddedBundle, RawFile, Root, Space, SpaceError, Spaces};
use crate::trust::{IgnoredFile, Trust};
use crate::verify::{self, SignatureFormat, VerifiedLine};

pub(crate) use dependencies::compare;
pub use dependencies::{Dependencies, EXCLUDED_DIRS, LockedEnvironment, Owner, Scope};
pub use path::PathItem;
pub use sign::{SignError, SignOutcome};
pub(crate) use verify_batch::parallel;
pub use verify_batch::{FileVerification, VerifiedSignature};

/// Where the extractor table is, relative to `.ai/`.
const EXTRACTORS: &str = "tools/rye/core/extractors/tool_extractor.yaml";

/// Options of [`Library::open`].
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The project directory, which contains `.ai/`.
    pub project: Option<&'a Path>,
    /// The directory that contains the user's `.ai/`, usually the home directory.
    pub user: Option<&'a Path>,
    /// Directories of further system bundles, searched before the embedded one.
    pub bundles: &'a [PathBuf],
    /// The bundle embedded in the binary.
    pub embedded: &'static EmbeddedBundle,
    /// The cache directory. Without one, or if others can write to it, nothing is cached on disk.
    pub cache: Option<&'a Path>,
    /// Results shared between libraries of this process. None starts with an empty cache.
    pub process_cache: Option<&'a Arc<ProcessCache>>,
    /// Development mode: project and user items that fail verification load with a warning.
    pub dev_mode: bool,
}

impl Options<'_> {
    /// Options for the system space alone.
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

/// Why an item cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// No file, or more than one, has this id.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The file cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// Signature verification failed.
    #[error(transparent)]
    Integrity(Box<IntegrityError>),
    /// The metadata is invalid.
    #[error("{}: {source}", path.display())]
    Metadata {
        /// The item's file.
        path: PathBuf,
        /// The cause, with its position in the file.
        source: Box<MetadataError>,
    },
}

impl From<PathError> for ItemError {
    fn from(error: PathError) -> Self {
        Self::Space(error.into())
    }
}

impl From<IntegrityError> for ItemError {
    fn from(error: IntegrityError) -> Self {
        Self::Integrity(Box::new(error))
    }
}

/// The items of all spaces.
///
/// A library is cheap to open and is meant for one call, so that the next call sees changes on
/// disk.
#[derive(Debug)]
pub struct Library {
    spaces: Arc<Spaces>,
    extractors: Arc<Extractors>,
    /// The hash of all extractor tables; part of every metadata cache key.
    extractors_hash: Hash,
    ignored: Vec<IgnoredFile>,
    process_cache: Arc<ProcessCache>,
    parse_cache: ParseCache,
    dev_mode: bool,
}

impl Library {
    /// Opens the spaces and reads the extractor tables.
    pub fn open(options: &Options<'_>) -> Result<Self, ItemError> {
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
        let process_cache = process_cache.cloned().unwrap_or_default();
        Self::in_spaces(Arc::new(spaces), cache, process_cache, dev_mode)
    }

    /// Reads the extractor tables of spaces that are already open. The other arguments are those of
    /// [`Options`].
    pub fn in_spaces(
        spaces: Arc<Spaces>,
        cache: Option<&Path>,
        process_cache: Arc<ProcessCache>,
        dev_mode: bool,
    ) -> Result<Self, ItemError> {
        let mut ignored = Vec::new();
        let parse_cache = ParseCache::new(cache);
        let trust = Trust::with_cache(&spaces, Arc::clone(&process_cache));
        let (extractors, extractors_hash) =
            read_extractors(&spaces, &trust, &parse_cache, &mut ignored)?;
        drop(trust);
        Ok(Self {
            spaces,
            extractors,
            extractors_hash,
            ignored,
            process_cache,
            parse_cache,
            dev_mode,
        })
    }

    /// The spaces.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// The merged extractor tables, which map file extensions to parsers.
    pub fn extractors(&self) -> &Extractors {
        &self.extractors
    }

    /// Extractor tables that were ignored because they do not verify.
    pub fn ignored(&self) -> &[IgnoredFile] {
        &self.ignored
    }

    /// The trust store of the spaces.
    pub fn trust(&self) -> Trust<'_> {
        Trust::with_cache(&self.spaces, Arc::clone(&self.process_cache))
    }

    /// Finds an item's file in the project, user and system space, in this order.
    pub fn find(&self, reference: &ItemRef) -> Result<ItemFile<'_>, LookupError> {
        lookup::find(&self.spaces, &self.extractors, reference, Space::Project)
    }

    /// Finds an item that an item of `space` names. Spaces of higher precedence are searched only
    /// if the others don't contain it: an override in a project doesn't affect the items of the
    /// user and the system, which cannot depend on it.
    pub fn find_from(
        &self,
        space: Space,
        reference: &ItemRef,
    ) -> Result<ItemFile<'_>, LookupError> {
        match lookup::find(&self.spaces, &self.extractors, reference, space) {
            Err(LookupError::NotFound { .. }) if space != Space::Project => self.find(reference),
            found => found,
        }
    }

    /// The files with the same id in spaces of lower precedence.
    pub fn shadowed(&self, item_file: &ItemFile<'_>) -> Vec<ItemFile<'_>> {
        let after = self
            .spaces
            .roots()
            .skip_while(|root| !std::ptr::eq(*root, item_file.root));
        after
            .skip(1)
            .filter_map(|root| {
                lookup::find_in(root, &self.extractors, &item_file.reference).ok()?
            })
            .collect()
    }

    /// All items of a kind, space by space, including shadowed ones.
    pub fn list(&self, kind: ItemKind) -> Vec<Result<ItemFile<'_>, SpaceError>> {
        self.list_within(kind, |_| true)
    }

    /// All items of a kind in the spaces that a filter accepts. Errors of other spaces are not
    /// reported.
    pub fn list_within(
        &self,
        kind: ItemKind,
        within: impl Fn(Space) -> bool,
    ) -> Vec<Result<ItemFile<'_>, SpaceError>> {
        let roots = self.spaces.roots().filter(|root| within(root.space()));
        roots
            .flat_map(|root| lookup::list(root, kind, &self.extractors))
            .collect()
    }

    /// Finds an item, reads its file once, and verifies those bytes.
    pub fn load(&self, reference: &ItemRef) -> Result<Verified<Item>, ItemError> {
        let item_file = self.find(reference)?;
        self.verify(&item_file, &self.trust())
    }

    /// Reads an item's file once, and verifies those bytes.
    pub fn verify(
        &self,
        item_file: &ItemFile<'_>,
        trust: &Trust<'_>,
    ) -> Result<Verified<Item>, ItemError> {
        let format = self.format_of(item_file);
        let raw = read(item_file)?;
        let (signed, waived) = match verify::check(&raw.bytes, &format, trust) {
            Ok(signed) => (Some(signed), None),
            Err(problem) => {
                let error = integrity_error(item_file, problem, &raw.bytes);
                if !self.dev_mode || item_file.root.space() == Space::System {
                    return Err(error.into());
                }
                (None, Some(error))
            }
        };
        Ok(verified(item_file, raw, signed, waived))
    }

    /// The metadata of an item, from the caches if its content was parsed before.
    pub fn metadata(&self, item: &Verified<Item>) -> Result<Arc<Metadata>, ItemError> {
        let Item {
            extension,
            reference,
            ..
        } = &**item;
        // The hash excludes the signature line. Together with the length it determines the
        // position of every value, because the line's place in the file is fixed.
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
        let cached = || self.parse_cache.get("metadata", &hash, read).map(Arc::new);
        self.process_cache
            .metadata
            .get(hash, cached)
            .map_err(|source| ItemError::Metadata {
                path: item.path.clone(),
                source: Box::new(source),
            })
    }

    /// Reads a configuration file; none if it does not exist. The user's own files need no
    /// signature. In other spaces a file that does not verify is an error.
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

    fn format_of(&self, item_file: &ItemFile<'_>) -> SignatureFormat {
        self.signature_format(
            &item_file.extension,
            item_file.reference.kind,
            &item_file.relative,
        )
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

/// Adds the item and the position in its file to a problem.
fn integrity_error(
    item_file: &ItemFile<'_>,
    problem: IntegrityProblem,
    bytes: &[u8],
) -> IntegrityError {
    let space = Some(item_file.root.space());
    IntegrityError::new(
        item_file.reference.to_string(),
        item_file.path(),
        space,
        problem,
        Some(bytes),
    )
}

fn read(item_file: &ItemFile<'_>) -> Result<RawFile, ItemError> {
    let raw = item_file.root.read(&item_file.relative)?;
    // The lookup found it, so it was removed since.
    Ok(raw.ok_or_else(|| SpaceError::ChangedWhileReading(item_file.path()))?)
}

fn check_config(
    raw: &RawFile,
    relative: &str,
    trust: &Trust<'_>,
) -> Result<VerifiedLine, IntegrityProblem> {
    verify::check(&raw.bytes, &SignatureFormat::config(ITEM, relative), trust)
}

/// Merges the extractor tables of all spaces; project overrides user, user overrides system. A
/// table that does not verify is ignored in every space.
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
        let path = || root.path_to(EXTRACTORS);
        let raw = match root.read(EXTRACTORS) {
            Ok(Some(raw)) => raw,
            Ok(None) => continue,
            // A project must not stop every command by making the table unreadable.
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

/// Parses an extractor table, or returns the cached one for this content hash.
fn table_of(
    bytes: &[u8],
    hash: Hash,
    trust: &Trust<'_>,
    parse_cache: &ParseCache,
) -> Result<Arc<Extractors>, String> {
    let make = || Extractors::from_yaml(bytes).map_err(|e| e.to_string());
    let cached = || parse_cache.get("extractors", &hash, make).map(Arc::new);
    trust.cache().extractors.get(hash, cached)
}

/// The item of a file that was verified, or whose failed verification was waived.
fn verified(
    item_file: &ItemFile<'_>,
    raw: RawFile,
    signed: Option<VerifiedLine>,
    waived: Option<IntegrityError>,
) -> Verified<Item> {
    let element = signed.as_ref().and_then(|signed| signed.element.clone());
    let (bytes, content): (Arc<[u8]>, Arc<[u8]>) = match element {
        None => {
            let content = signature::strip_signature(&raw.bytes).into();
            (raw.bytes.into(), content)
        }
        Some(range) => {
            let element: Arc<[u8]> = raw.bytes[range].into();
            (Arc::clone(&element), element)
        }
    };
    let (coverage, hash) = match &signed {
        Some(signed) => (signed.coverage, signed.line.hash),
        None => (Coverage::Whole, Hash::digest(&content)),
    };
    let (signature, signer) = signed.map(|signed| (signed.line, signed.key)).unzip();
    Verified::new(Item {
        reference: item_file.reference.clone(),
        space: item_file.root.space(),
        bundle: item_file.root.bundle().map(str::to_owned),
        path: item_file.path(),
        extension: item_file.extension.clone(),
        coverage,
        identity: raw.identity,
        hash,
        signature,
        signer,
        waived,
        bytes,
        content,
    })
}
