//! Why a server's tool could not be called.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::said::Diagnostics;
use super::tools::Drift;

/// A server that could not be used, or a call that failed.
#[derive(Debug, Clone)]
pub struct ClientError {
    /// The server, by the name people know.
    pub server: String,
    /// What went wrong.
    pub kind: ClientErrorKind,
    /// What the server said beside the protocol.
    pub diagnostics: Box<Diagnostics>,
}

/// What went wrong with a server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// Its configuration cannot be used.
    Config(String),
    /// It could not be started.
    Launch(String),
    /// It did not answer `initialize` in time.
    StartTimeout(Duration),
    /// It refused `initialize`, or answered with something else.
    Handshake(String),
    /// It ended before it had answered `initialize`.
    ExitedDuringStart(String),
    /// It could not be reached over the network.
    Unreachable(String),
    /// It wants to know who calls: a person has to log in.
    LoginNeeded {
        /// What the login must allow, if it says so.
        scope: Option<String>,
        /// What it said.
        challenge: String,
    },
    /// A login came to nothing.
    LoginFailed(String),
    /// It asked for something that nobody here could give.
    UnsupportedInput(String),
    /// It ended, or closed its end, during a call.
    ConnectionLost {
        /// How it ended.
        how: String,
        /// Whether the call may have reached it.
        sent: bool,
    },
    /// What it said is not the protocol.
    Protocol(String),
    /// Its answer is longer than the limit, in bytes.
    MessageTooLong(usize),
    /// It did not answer in time.
    Timeout(Duration),
    /// It answered with an error of the protocol.
    Rpc {
        /// The code of JSON-RPC.
        code: i32,
        /// What it said.
        message: String,
        /// What it added.
        data: Option<Box<Value>>,
    },
    /// It has no such tool.
    UnknownTool {
        /// What was asked for.
        name: String,
        /// What it has.
        there: Vec<String>,
    },
    /// The tool is not what was accepted.
    Drift(Box<Drift>),
    /// We are ending.
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

    pub(super) fn with(mut self, said: Diagnostics) -> Self {
        self.diagnostics = Box::new(said);
        self
    }

    /// A stable word for scripts.
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

    /// The next command, where there is one.
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

    /// Whether the same call may be sent again: it has certainly not been carried out.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(
            self.kind,
            ClientErrorKind::ConnectionLost { sent: false, .. }
        )
    }

    /// Whether it may have been carried out, and nobody knows.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.kind, ClientErrorKind::ConnectionLost { .. })
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match &self.kind {
            ClientErrorKind::Config(why) => write!(f, "the server {server} cannot be used: {why}")?,
            ClientErrorKind::Launch(why) => {
                write!(f, "the server {server} cannot be started: {why}")?
            }
            ClientErrorKind::StartTimeout(limit) => write!(
                f,
                "the server {server} did not answer `initialize` within {:.1} s",
                limit.as_secs_f64()
            )?,
            ClientErrorKind::Handshake(why) => {
                write!(
                    f,
                    "the server {server} did not answer `initialize` as it should: {why}"
                )?;
            }
            ClientErrorKind::ExitedDuringStart(how) => {
                write!(f, "the server {server} {how} while it was being started")?;
            }
            ClientErrorKind::Unreachable(why) => {
                write!(f, "the server {server} cannot be reached: {why}")?
            }
            ClientErrorKind::LoginNeeded { scope: None, .. } => write!(
                f,
                "the server {server} wants to know who calls: somebody has to log in"
            )?,
            ClientErrorKind::LoginNeeded {
                scope: Some(scope), ..
            } => write!(f, "the server {server} wants a login that allows `{scope}`")?,
            ClientErrorKind::LoginFailed(why) => {
                write!(f, "no login to the server {server}: {why}")?
            }
            ClientErrorKind::UnsupportedInput(what) => write!(f, "the server {server} {what}")?,
            ClientErrorKind::ConnectionLost { how, sent: true } => write!(
                f,
                "the server {server} {how} during the call; the call had reached it and may have \
                 had its effect, so it is not sent again"
            )?,
            ClientErrorKind::ConnectionLost { how, sent: false } => {
                write!(
                    f,
                    "the server {server} {how} before the call had reached it"
                )?;
            }
            ClientErrorKind::Protocol(what) => {
                write!(f, "the server {server} does not speak MCP: {what}")?
            }
            ClientErrorKind::MessageTooLong(limit) => write!(
                f,
                "the server {server} answered with more than the {limit} bytes that one message may have"
            )?,
            ClientErrorKind::Timeout(limit) => write!(
                f,
                "the server {server} did not answer within {:.1} s; the call was cancelled",
                limit.as_secs_f64()
            )?,
            ClientErrorKind::Rpc { code, message, .. } => {
                write!(
                    f,
                    "the server {server} answered with error {code}: {message}"
                )?;
            }
            ClientErrorKind::UnknownTool { name, there } => {
                write!(f, "the server {server} has no tool `{name}`; it has ")?;
                match there.as_slice() {
                    [] => f.write_str("none")?,
                    there => f.write_str(&there.join(", "))?,
                }
            }
            ClientErrorKind::Drift(drift) => {
                write!(f, "the server {server} has changed its tool {drift}")?
            }
            ClientErrorKind::ShuttingDown => write!(f, "the server {server} is being shut down")?,
        }
        self.diagnostics.fmt(f)
    }
}
