//! The Agent Client Protocol, version 1: an editor is the user interface of agent sessions.
//!
//! [`run`] is what `rye acp` calls, and [`serve_remote`] what a server calls for a connection. A request of the editor arrives in `agent`; each open session
//! has a task (`session`) that sends prompts and decisions through the engine's calls, follows the
//! session's events, and sends them to the editor. What an event looks like in the editor is
//! decided without I/O, in `transcript`, `tool_call` and `gates`.

mod agent;
mod auth;
mod caller;
mod content;
mod editor_files;
mod failure;
mod gates;
mod history;
mod mcp_servers;
mod server;
mod session;
mod settings;
mod slash_command;
mod tool_call;
mod transcript;
mod transport;

pub use caller::Caller;
pub use server::{Options, run, serve_remote};
pub use transport::MAX_MESSAGE;
