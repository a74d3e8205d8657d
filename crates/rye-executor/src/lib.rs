//! From a tool's name to a finished process.

pub mod chain;
pub mod dotenv;
pub mod parameters;
pub mod primitive;
pub mod template;
