//! From a tool's name to a finished process.

pub mod anchor;
pub mod chain;
pub mod config;
pub mod dotenv;
pub mod environment;
pub mod interpreter;
pub mod parameters;
pub mod primitive;
pub mod template;
