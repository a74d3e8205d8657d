//! Items: the signed files that tools, directives, knowledge and configuration are.
//!
//! | module or type | gives |
//! |---|---|
//! | [`Library`] | the items of a project, the user and the system: find, load, verify, sign |
//! | [`ItemRef`], [`ItemId`] | names that cannot leave their folder |
//! | [`space`] | the three spaces, and folders that no path leads out of |
//! | [`signature`] | the line that signs a file, and what it covers |
//! | [`trust`] | which keys count, and why |
//! | [`Verified`], [`Item`] | bytes that were checked; nothing else goes on to be used |
//! | [`metadata`] | what a file says about itself, read without running it |
//! | [`search`] | all of them, ranked, from a cache that cannot be stale |
//! | [`vault`] | secrets, sealed to the user's own key |
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
