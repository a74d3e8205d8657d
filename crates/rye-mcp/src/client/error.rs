//! Errors of the MCP client.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::diagnostics::Diagnostics;
use super::tools::Drift;

/// A server that cannot be used, or a failed call.
#[derive(Debug, Clone)]
pub struct ClientError {
    /// Item id of the server's configuration.
    pub server: String,
    /// Kind of error with its details.
    pub kind: ClientErrorKind,
    /// Output of the server outside of the protocol.
    pub diagnostics: Box<Diagnostics>,
}

/// Kind of error of a server or call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The configuration is invalid or refers to a missing variable or secret.
    Config(String),
    /// The program cannot be started.
    Launch(String),
    /// The server did not complete the handshake in time.
    StartTimeout(Duration),
    /// The server rejected the handshake or answered it incorrectly.
    Handshake(String),
    /// The server ended before it completed the handshake.
    ExitedDuringStart(String),
    /// The server cannot be reached over HTTP.
    Unreachable(String),
    /// The server requires a login.
    LoginNeeded {
        /// Scope that the login must have, if the server names one.
        scope: Option<String>,
        /// Value of the `WWW-Authenticate` header.
        challenge: String,
    },
    /// A login failed.
    LoginFailed(String),
    /// The server requested input that this client cannot provide.
    UnsupportedInput(String),
    /// The server ended or closed the connection during a call.
    ConnectionLost {
        /// How it ended, as a predicate such as "exited with code 1".
        cause: String,
        /// The call may have reached the server.
        was_sent: bool,
    },
    /// The server violated the protocol.
    Protocol(String),
    /// A message exceeds this limit, in bytes.
    MessageTooLong(usize),
    /// The server did not answer within this time.
    Timeout(Duration),
    /// The server answered with a JSON-RPC error.
    Rpc {
        /// JSON-RPC error code.
        code: i32,
        /// Message of the server.
        message: String,
        /// Additional data of the error.
        data: Option<Box<Value>>,
    },
    /// The server has no such tool.
    UnknownTool {
        /// Requested tool.
        name: String,
        /// Tools of the server.
        available: Vec<String>,
    },
    /// The definition of the tool differs from the accepted one.
    Drift(Box<Drift>),
    /// The pool is shutting down.
    ShuttingDown,
}

impl ClientError {
    pub(super) fn new(server: &str, kind: ClientErrorKind) -> Self {
        Self {
            server: server.to_owned(),
            kind,
            diagnostics: Box::default(),
        }
    }

    pub(super) fn with_diagnostics(mut self, diagnostics: Diagnostics) -> Self {
        self.diagnostics = Box::new(diagnostics);
        self
    }

    /// Stable error code for scripts.
    pub fn code(&self) -> &'static str {
        match self.kind {
            ClientErrorKind::Config(_) => "mcp_config",
            ClientErrorKind::Launch(_) => "cannot_start",
            ClientErrorKind::StartTimeout(_)
            | ClientErrorKind::Handshake(_)
            | ClientErrorKind::ExitedDuringStart(_) => "mcp_start",
            ClientErrorKind::Unreachable(_) => "connection",
            ClientErrorKind::LoginNeeded { .. } => "login_required",
            ClientErrorKind::LoginFailed(_) => "mcp_login",
            ClientErrorKind::UnsupportedInput(_) => "mcp_unsupported_input",
            ClientErrorKind::ConnectionLost { .. } => "mcp_lost",
            ClientErrorKind::Protocol(_) => "mcp_protocol",
            ClientErrorKind::MessageTooLong(_) => "mcp_too_long",
            ClientErrorKind::Timeout(_) => "timeout",
            ClientErrorKind::Rpc { .. } => "mcp_error",
            ClientErrorKind::UnknownTool { .. } => "mcp_no_tool",
            ClientErrorKind::Drift(_) => "mcp_drift",
            ClientErrorKind::ShuttingDown => "mcp_shut_down",
        }
    }

    /// Command that helps to resolve the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        let name = self.server.rsplit('/').next().unwrap_or(&self.server);
        Some(match &self.kind {
            ClientErrorKind::LoginNeeded {
                scope: Some(scope), ..
            } => format!("rye mcp login {name} --scope '{scope}'"),
            ClientErrorKind::LoginNeeded { scope: None, .. } | ClientErrorKind::LoginFailed(_) => {
                format!("rye mcp login {name}")
            }
            ClientErrorKind::Drift(_) => format!("rye mcp discover {name} --accept"),
            ClientErrorKind::UnknownTool { .. } => format!("rye mcp discover {name}"),
            ClientErrorKind::MessageTooLong(_) => format!(
                "raise `max_message` in {}, then: rye sign {}",
                self.server, self.server
            ),
            ClientErrorKind::StartTimeout(_) => format!(
                "raise `start_timeout` in {}, then: rye sign {}",
                self.server, self.server
            ),
            ClientErrorKind::Config(_)
            | ClientErrorKind::Launch(_)
            | ClientErrorKind::Unreachable(_) => {
                format!("rye load {}", self.server)
            }
            _ => return None,
        })
    }

    /// Whether the call certainly did not reach the server, so that it may be retried.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(
            self.kind,
            ClientErrorKind::ConnectionLost {
                was_sent: false,
                ..
            }
        )
    }

    /// Whether the connection was lost, so that the outcome of the call is unknown.
    pub(super) fn is_connection_lost(&self) -> bool {
        matches!(self.kind, ClientErrorKind::ConnectionLost { .. })
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match &self.kind {
            ClientErrorKind::Config(why) => {
                write!(f, "server {server}: invalid configuration: {why}")?;
            }
            ClientErrorKind::Launch(why) => write!(f, "server {server}: cannot start: {why}")?,
            ClientErrorKind::StartTimeout(limit) => {
                let seconds = limit.as_secs_f64();
                write!(
                    f,
                    "server {server}: no answer to `initialize` within {seconds:.1} s"
                )?;
            }
            ClientErrorKind::Handshake(why) => {
                write!(f, "server {server}: handshake failed: {why}")?;
            }
            ClientErrorKind::ExitedDuringStart(cause) => {
                write!(f, "server {server} {cause} during startup")?;
            }
            ClientErrorKind::Unreachable(why) => {
                write!(f, "server {server}: cannot connect: {why}")?;
            }
            ClientErrorKind::LoginNeeded { scope: None, .. } => {
                write!(f, "server {server}: login required")?;
            }
            ClientErrorKind::LoginNeeded {
                scope: Some(scope), ..
            } => write!(f, "server {server}: login with scope `{scope}` required")?,
            ClientErrorKind::LoginFailed(why) => {
                write!(f, "server {server}: login failed: {why}")?;
            }
            ClientErrorKind::UnsupportedInput(what) => write!(f, "server {server} {what}")?,
            ClientErrorKind::ConnectionLost {
                cause,
                was_sent: true,
            } => write!(
                f,
                "server {server} {cause} during the call; the call may have taken effect, so it \
                 is not retried"
            )?,
            ClientErrorKind::ConnectionLost {
                cause,
                was_sent: false,
            } => write!(f, "server {server} {cause} before it received the call")?,
            ClientErrorKind::Protocol(what) => {
                write!(f, "server {server}: protocol violation: {what}")?;
            }
            ClientErrorKind::MessageTooLong(limit) => {
                write!(
                    f,
                    "server {server}: message exceeds the limit of {limit} bytes"
                )?;
            }
            ClientErrorKind::Timeout(limit) => {
                let seconds = limit.as_secs_f64();
                write!(
                    f,
                    "server {server}: no answer within {seconds:.1} s; the call was cancelled"
                )?;
            }
            ClientErrorKind::Rpc { code, message, .. } => {
                write!(f, "server {server}: error {code}: {message}")?;
            }
            ClientErrorKind::UnknownTool { name, available } => {
                let available = match available.as_slice() {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                };
                write!(
                    f,
                    "server {server} has no tool `{name}`; available: {available}"
                )?;
            }
            ClientErrorKind::Drift(drift) => write!(f, "server {server}: {drift}")?,
            ClientErrorKind::ShuttingDown => write!(f, "server {server}: shutting down")?,
        }
        self.diagnostics.fmt(f)
    }
}
