//! The client: any MCP server's tools, called like the rest.
//!
//! A [`ServerConfig`] is what a signed item says of a server. A [`Pool`] makes a
//! connection when a server is first called, and keeps it: calls share it, at once
//! and one after another. Whatever a server does, hang, die, flood, or speak rubbish,
//! costs a bounded time, gives a [`ClientError`] that says what it was, and holds up
//! no other server. Servers that are processes run under lillux's supervisor, so
//! nothing of them outlives this program.

pub(crate) mod ask;
mod call;
mod config;
mod connect;
mod connection;
pub mod discovery;
mod error;
mod http;
pub mod import;
mod jsonc;
mod lines;
mod login;
mod pool;
mod process;
mod said;
mod source;
mod stdio;
mod tools;
mod wire;
mod yaml;

pub use ask::{Elicitation, ElicitationHandler, ElicitationReply};
pub use call::ToolCall;
pub use config::{
    CALL_TIMEOUT, IDLE_TIMEOUT, MAX_MESSAGE, OAUTH, Protocol, START_TIMEOUT, ServerConfig,
    Transport,
};
pub use connect::ServerSpec;
pub use error::{ClientError, ClientErrorKind};
pub use import::secret_name;
pub use login::{LoginGrant, LoginRequest};
pub use pool::Pool;
pub use rye_executor::redact::is_secret_name;
pub use said::Diagnostics;
pub use source::ConfigValue;
pub use tools::{Drift, Pin, RemoteTool};
pub use yaml::item_yaml;
