//! MCP client: calls tools of MCP servers over stdio and streamable HTTP.
//!
//! A signed item holds the [`ServerConfig`] of a server. A [`Pool`] connects when a server is
//! first called and keeps the connection, which concurrent and later calls share. A server that
//! hangs, exits, floods its output or violates the protocol costs a bounded time, yields a
//! [`ClientError`] with diagnostics, and does not delay calls to other servers. Server processes
//! run under lillux's supervisor, so none of them outlives this program.

mod call;
mod config;
mod connect;
mod connection;
mod diagnostics;
pub mod discovery;
pub(crate) mod elicitation;
mod error;
mod http;
pub mod import;
mod in_flight;
mod jsonc;
mod login;
mod pool;
mod process;
mod stdio;
mod tools;
mod value;
mod yaml;

pub use call::ToolCall;
pub use config::{
    DEFAULT_CALL_TIMEOUT, DEFAULT_IDLE_TIMEOUT, DEFAULT_INSTALL_TIMEOUT, DEFAULT_MAX_MESSAGE,
    DEFAULT_START_TIMEOUT, OAUTH_KEYS, Protocol, ServerConfig, Transport,
};
pub use connect::ServerSpec;
pub use diagnostics::Diagnostics;
pub use elicitation::{Elicitation, ElicitationFuture, ElicitationHandler, ElicitationReply};
pub use error::{ClientError, ClientErrorKind};
pub use import::secret_name;
pub use login::{LoginGrant, LoginRequest, Loopback};
pub use pool::Pool;
pub use rye_executor::redact::is_secret_name;
pub use tools::{Drift, Pin, RemoteTool};
pub use value::ConfigValue;
pub use yaml::item_yaml;
