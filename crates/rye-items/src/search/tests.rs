//! The catalogue over real files.

mod cache;
mod corpus;
mod edits;
mod fresh;
mod house;
mod ranking;
mod spaces;
