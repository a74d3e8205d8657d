//! Items: the signed files that tools, directives, knowledge and configuration are.

mod comment;
mod id;
mod place;
pub mod search;
pub mod signature;
pub mod space;

pub use comment::Comment;
pub use id::{IdError, IdProblem, ItemId, ItemKind, ItemRef};
pub use place::{Excerpt, Position};
pub use space::{Space, Spaces};
