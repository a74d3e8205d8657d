//! Tests of the index with real files.

mod cache;
mod corpus;
mod fixture;
mod forged_segments;
mod freshness;
mod random_edits;
mod ranking;
mod spaces;
