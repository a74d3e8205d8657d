//! MCP both ways.
//!
//! [`client`] calls the tools of other servers; [`Mcp`] is the primitive by which
//! they are tools like the rest.

pub mod client;
mod primitive;

pub use primitive::{Mcp, tool_result};
