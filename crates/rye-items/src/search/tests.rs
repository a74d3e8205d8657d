//! The catalogue over real files.

mod cache;
mod corpus;
mod edits;
mod fresh;
mod house;
mod made_up;
mod ranking;
mod spaces;
