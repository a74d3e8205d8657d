//! The sandbox RPC: a sandbox on another machine or in a container.
//!
//! [`SandboxServer`] serves any sandbox with HTTP requests, over TCP or over its standard streams.
//! [`RemoteSandbox`] is the sandbox at the other end. Both use HTTP/2, so that one connection
//! carries all requests; the server also accepts HTTP/1.1.

mod client;
mod connect;
mod execs;
mod remote;
mod server;
mod wire;

pub use connect::{HttpsTarget, SshTarget};
pub use remote::RemoteSandbox;
pub use server::{SandboxServer, ServeError, ServeOptions, tls_acceptor};
pub use wire::Secret;

pub(crate) use connect::{Connect, Connection, Diagnostics, connect_error, read_greeting};
