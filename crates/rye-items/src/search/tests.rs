//! The catalogue over real files.

mod corpus;
mod house;
mod ranking;
mod spaces;
