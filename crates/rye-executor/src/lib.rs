//! From a tool's name to a finished process.

pub mod dotenv;
pub mod template;
