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
mod derived;
mod id;
mod integrity;
mod item;
mod library;
mod lookup;
mod manifest;
mod materialise;
mod memory;
pub mod metadata;
mod own_folder;
mod own_keys;
mod place;
pub mod search;
pub mod signature;
mod snapshot;
pub mod space;
mod system;
pub mod trust;
pub mod vault;
pub mod verify;

pub use acceptance::Acceptance;
pub use comment::Comment;
pub use id::{IdError, IdProblem, ItemId, ItemKind, ItemRef};
pub use integrity::{IntegrityError, Problem};
pub use item::{Coverage, Item, Verified};
pub use library::{
    Checked, Dependencies, EXCLUDED_DIRS, Good, ItemError, Library, LockedEnvironment, Options,
    Owner, PathItem, Scope, SignError, SignOutcome,
};
pub use lookup::{Found, LookupError};
pub use manifest::MANIFEST;
pub use materialise::private_copy;
pub use memory::Memory;
pub use own_folder::{is_own_folder, own_folder};
pub use own_keys::{OwnKeyError, OwnKeys, private_directories, read_key_file};
pub use place::{Excerpt, Position};
pub use snapshot::Snapshot;
pub use space::{Embedded, Space, SpaceError, Spaces};
pub use system::SYSTEM;
