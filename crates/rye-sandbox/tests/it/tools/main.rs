//! What the built-in tools do, each case on each sandbox, as an agent calls them.

mod agent;
mod edit;
mod find;
mod long;
mod read;
mod threads;
mod walk;
