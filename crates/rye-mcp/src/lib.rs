//! MCP server and client.
//!
//! The [`server`] offers signed items to MCP clients through five tools: `search`, `load`,
//! `execute`, `sign` and `help`. Because the number of tools does not grow with the number of
//! items, neither does the prompt of the model that uses them. An embedding program implements
//! [`Gateway`], which does the work behind the tools.
//!
//! The [`client`] calls tools of other MCP servers. [`McpPrimitive`] makes them available as
//! tools of the executor.
//!
//! ```
//! use rye_mcp::client::{ServerConfig, Transport};
//! use serde_json::json;
//!
//! let config = ServerConfig::parse(&json!({
//!     "url": "https://example.org/mcp",
//!     "headers": { "Authorization": { "vault": "EXAMPLE_TOKEN", "prefix": "Bearer " } },
//! }))?;
//! assert!(matches!(config.transport, Transport::Http { .. }));
//! # Ok::<_, String>(())
//! ```

pub mod client;
mod gateway;
mod lines;
mod primitive;
pub mod server;

pub use gateway::{
    ApprovalChannel, CallDecision, CallEnd, Component, ExecuteRequest, GatedCall, Gateway,
    GatewayError, GatewayResult, HelpRequest, ItemSummary, LoadRequest, PlannedCopy, ProjectBounds,
    SearchRequest, SignRequest, ToolReply, UnsignedItem,
};
pub use primitive::{McpPrimitive, tool_result};
