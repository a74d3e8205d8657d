//! Items: the signed files of tools, directives, knowledge and configuration.
//!
//! This crate resolves item ids to files, reads metadata without running the file, verifies and
//! writes signatures, and searches.
//!
//! | module or type | purpose |
//! |---|---|
//! | [`Library`] | find, load, verify and sign the items of project, user and system |
//! | [`ItemRef`], [`ItemId`] | item names that cannot escape their directory |
//! | [`space`] | the three spaces, and directories that no path can escape |
//! | [`signature`] | the signature line of a file and what it covers |
//! | [`trust`] | the trust store: which keys are trusted, and which are revoked |
//! | [`Verified`], [`Item`] | an item's bytes after verification |
//! | [`metadata`] | metadata extraction by static parsing |
//! | [`search`] | ranked full-text search with an index cache |
//! | [`vault`] | secrets, encrypted with the user's key |
//!
//! ```
//! use rye_items::{Library, Options, SYSTEM};
//!
//! let library = Library::open(&Options::new(&SYSTEM))?;
//! let runtime = library.load(&"rye/core/runtimes/python/script".parse()?)?;
//! assert!(runtime.signer.is_some());
//! let metadata = library.metadata(&runtime)?;
//! assert_eq!(metadata.executor_id(), Some("rye/core/primitives/execute"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acceptance;
mod comment;
mod excerpt;
mod id;
mod integrity;
mod item;
mod library;
mod lookup;
mod manifest;
mod materialise;
pub mod metadata;
mod owner_only_dir;
mod parse_cache;
mod process_cache;
pub mod search;
pub mod signature;
mod snapshot;
pub mod space;
mod system;
pub mod trust;
mod user_keys;
pub mod vault;
pub mod verify;

pub use acceptance::Acceptance;
pub use comment::CommentStyle;
pub use excerpt::{Excerpt, Position};
pub use id::{IdError, IdProblem, ItemId, ItemKind, ItemRef};
pub use integrity::{IntegrityError, IntegrityProblem};
pub use item::{Coverage, Item, Verified};
pub use library::{
    Dependencies, EXCLUDED_DIRS, FileVerification, ItemError, Library, LockedEnvironment, Options,
    Owner, PathItem, Scope, SignError, SignOutcome, VerifiedSignature,
};
pub use lookup::{ItemFile, LookupError};
pub use manifest::MANIFEST;
pub use materialise::write_private_copy;
pub use owner_only_dir::{ensure_owner_only_dir, is_owner_only_dir};
pub use process_cache::ProcessCache;
pub use snapshot::Snapshot;
pub use space::{EmbeddedBundle, Space, SpaceError, Spaces};
pub use system::SYSTEM;
pub use user_keys::{UserKeyError, UserKeys, private_directories, read_key_file};
