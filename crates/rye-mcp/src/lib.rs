//! MCP both ways: five tools out, every server in.
//!
//! The [server] lets any MCP client use any number of signed items through five tools:
//! `search`, `load`, `execute`, `sign`, `help`. Their number does not grow with the
//! number of items, and so neither does what a model must read before it can begin.
//! What they do is a host's [`Gateway`].
//!
//! The [client] calls the tools of other servers; [`Mcp`] is the primitive by which they
//! are tools like the rest.

pub mod client;
mod gateway;
mod primitive;
pub mod server;

pub use gateway::{
    ApprovalChannel, CallDecision, Component, ExecuteRequest, GatedCall, Gateway, GatewayError,
    GatewayResult, HelpRequest, ItemSummary, LoadRequest, PlannedCopy, ProjectBounds,
    SearchRequest, SignRequest, ToolReply, UnsignedItem,
};
pub use primitive::{McpPrimitive, tool_result};
