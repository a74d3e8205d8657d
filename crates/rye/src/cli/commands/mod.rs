//! The commands, one module each.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod execute;
pub(crate) mod gate;
pub(crate) mod graph;
pub(crate) mod help;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod load;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod prompt;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod sign;
pub(crate) mod system;
pub(crate) mod vault;
pub(crate) mod verify;
