//! Items: the signed files that tools, directives, knowledge and configuration are.

mod id;
pub mod metadata;
mod place;

pub use id::{IdError, IdProblem, ItemId, ItemKind, ItemRef};
pub use place::{Excerpt, Position};
