//! Errors of the MCP client.

use std::time::Duration;

use serde_json::Value;

use super::diagnostics::Diagnostics;
use super::tools::Drift;

/// A server that cannot be used, or a failed call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("server {server}{kind}{diagnostics}")]
pub struct ClientError {
    /// Item id of the server's configuration.
    pub server: String,
    /// Kind of error with its details.
    pub kind: ClientErrorKind,
    /// Output of the server outside of the protocol.
    pub diagnostics: Box<Diagnostics>,
}

/// Kind of error of a server or call. Its message follows the name of the server.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The configuration is invalid or refers to a missing variable or secret.
    #[error(": invalid configuration: {0}")]
    Config(String),
    /// The program cannot be started.
    #[error(": cannot start: {0}")]
    Launch(String),
    /// The server did not complete the handshake in time.
    #[error(": no answer to `initialize` within {:.1} s", .0.as_secs_f64())]
    StartTimeout(Duration),
    /// The server rejected the handshake or answered it incorrectly.
    #[error(": handshake failed: {0}")]
    Handshake(String),
    /// The server ended before it completed the handshake.
    #[error(" {0} during startup")]
    ExitedDuringStart(String),
    /// The server cannot be reached over HTTP.
    #[error(": cannot connect: {0}")]
    Unreachable(String),
    /// The server requires a login.
    #[error(": login {}required", .scope.as_ref().map_or_else(String::new, |it| format!("with scope `{it}` ")))]
    LoginNeeded {
        /// Scope that the login must have, if the server names one.
        scope: Option<String>,
        /// Value of the `WWW-Authenticate` header.
        challenge: String,
    },
    /// A login failed.
    #[error(": login failed: {0}")]
    LoginFailed(String),
    /// The server requested input that this client cannot provide.
    #[error(" {0}")]
    UnsupportedInput(String),
    /// The server ended or closed the connection during a call.
    #[error(" {cause} {}", if *.was_sent { SENT } else { "before it received the call" })]
    ConnectionLost {
        /// How it ended, as a predicate such as "exited with code 1".
        cause: String,
        /// The call may have reached the server.
        was_sent: bool,
    },
    /// The server violated the protocol.
    #[error(": protocol violation: {0}")]
    Protocol(String),
    /// A message exceeds this limit, in bytes.
    #[error(": message exceeds the limit of {0} bytes")]
    MessageTooLong(usize),
    /// The server did not answer within this time.
    #[error(": no answer within {:.1} s; the call was cancelled", .0.as_secs_f64())]
    Timeout(Duration),
    /// The server answered with a JSON-RPC error.
    #[error(": error {code}: {message}")]
    Rpc {
        /// JSON-RPC error code.
        code: i32,
        /// Message of the server.
        message: String,
        /// Additional data of the error.
        data: Option<Box<Value>>,
    },
    /// The server has no such tool.
    #[error(" has no tool `{name}`; available: {}", if .available.is_empty() { "none".to_owned() } else { .available.join(", ") })]
    UnknownTool {
        /// Requested tool.
        name: String,
        /// Tools of the server.
        available: Vec<String>,
    },
    /// The definition of the tool differs from the accepted one.
    #[error(": {0}")]
    Drift(Box<Drift>),
    /// The pool is shutting down.
    #[error(": shutting down")]
    ShuttingDown,
}

const SENT: &str = "during the call; the call may have taken effect, so it is not retried";

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
            // This command shows the difference, and its hint names the command that accepts it.
            ClientErrorKind::Drift(_) | ClientErrorKind::UnknownTool { .. } => {
                format!("rye mcp discover {name}")
            }
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
