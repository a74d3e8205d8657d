//! Items: the signed files that tools, directives, knowledge and configuration are.

mod comment;
mod derived;
mod id;
mod integrity;
mod item;
mod library;
mod lookup;
mod materialise;
pub mod metadata;
mod own_folder;
mod own_keys;
mod place;
pub mod search;
pub mod signature;
pub mod space;
mod system;
pub mod trust;
pub mod vault;
pub mod verify;

pub use comment::Comment;
pub use id::{IdError, IdProblem, ItemId, ItemKind, ItemRef};
pub use integrity::{IntegrityError, Problem};
pub use item::{Coverage, Item, Verified};
pub use library::{Checked, Good, ItemError, Library, Options, PathItem, SignError, SignOutcome};
pub use lookup::{Found, LookupError};
pub use own_folder::is_own_folder;
pub use own_keys::{OwnKeyError, OwnKeys, read_key_file};
pub use place::{Excerpt, Position};
pub use space::{Embedded, Space, SpaceError, Spaces};
pub use system::SYSTEM;
