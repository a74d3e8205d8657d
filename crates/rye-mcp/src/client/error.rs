//! Why a server's tool could not be called.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::said::Said;
use super::tools::Drift;

/// A server that could not be used, or a call that failed.
#[derive(Debug, Clone)]
pub struct ClientError {
    /// The server, by the name people know.
    pub server: String,
    /// What went wrong.
    pub kind: Kind,
    /// What the server said beside the protocol.
    pub said: Box<Said>,
}

/// What went wrong with a server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Its configuration cannot be used.
    Config(String),
    /// It could not be started.
    Launch(String),
    /// It did not answer `initialize` in time.
    StartTimeout(Duration),
    /// It refused `initialize`, or answered with something else.
    Handshake(String),
    /// It ended before it had answered `initialize`.
    EndedAtStart(String),
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
    LogIn(String),
    /// It asked for something that nobody here could give.
    Asked(String),
    /// It ended, or closed its end, during a call.
    Lost {
        /// How it ended.
        how: String,
        /// Whether the call may have reached it.
        sent: bool,
    },
    /// What it said is not the protocol.
    Protocol(String),
    /// Its answer is longer than the limit, in bytes.
    TooLong(usize),
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
    NoTool {
        /// What was asked for.
        name: String,
        /// What it has.
        there: Vec<String>,
    },
    /// The tool is not what was accepted.
    Drift(Box<Drift>),
    /// We are ending.
    ShutDown,
}

impl ClientError {
    pub(super) fn new(server: &str, kind: Kind) -> Self {
        Self {
            server: server.to_owned(),
            kind,
            said: Box::default(),
        }
    }

    pub(super) fn with(mut self, said: Said) -> Self {
        self.said = Box::new(said);
        self
    }

    /// A stable word for scripts.
    pub fn code(&self) -> &'static str {
        match self.kind {
            Kind::Config(_) => "mcp_config",
            Kind::Launch(_) => "cannot_start",
            Kind::StartTimeout(_) | Kind::Handshake(_) | Kind::EndedAtStart(_) => "mcp_start",
            Kind::Unreachable(_) => "connection",
            Kind::LoginNeeded { .. } => "login_required",
            Kind::LogIn(_) => "mcp_login",
            Kind::Asked(_) => "mcp_asked",
            Kind::Lost { .. } => "mcp_lost",
            Kind::Protocol(_) => "mcp_protocol",
            Kind::TooLong(_) => "mcp_too_long",
            Kind::Timeout(_) => "timeout",
            Kind::Rpc { .. } => "mcp_error",
            Kind::NoTool { .. } => "mcp_no_tool",
            Kind::Drift(_) => "mcp_drift",
            Kind::ShutDown => "mcp_shut_down",
        }
    }

    /// The next command, where there is one.
    pub fn hint(&self) -> Option<String> {
        let name = self.server.rsplit('/').next().unwrap_or(&self.server);
        Some(match &self.kind {
            Kind::LoginNeeded {
                scope: Some(scope), ..
            } => format!("rye mcp login {name} --scope '{scope}'"),
            Kind::LoginNeeded { scope: None, .. } | Kind::LogIn(_) => {
                format!("rye mcp login {name}")
            }
            Kind::Drift(_) => format!("rye mcp discover {name} --accept"),
            Kind::NoTool { .. } => format!("rye mcp discover {name}"),
            Kind::TooLong(_) => format!(
                "raise `max_message` in {}, then: rye sign {}",
                self.server, self.server
            ),
            Kind::StartTimeout(_) => format!(
                "raise `start_timeout` in {}, then: rye sign {}",
                self.server, self.server
            ),
            Kind::Config(_) | Kind::Launch(_) | Kind::Unreachable(_) => {
                format!("rye load {}", self.server)
            }
            _ => return None,
        })
    }

    /// Whether the same call may be sent again: it has certainly not been carried out.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(self.kind, Kind::Lost { sent: false, .. })
    }

    /// Whether it may have been carried out, and nobody knows.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.kind, Kind::Lost { .. })
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match &self.kind {
            Kind::Config(why) => write!(f, "the server {server} cannot be used: {why}")?,
            Kind::Launch(why) => write!(f, "the server {server} cannot be started: {why}")?,
            Kind::StartTimeout(limit) => write!(
                f,
                "the server {server} did not answer `initialize` within {:.1} s",
                limit.as_secs_f64()
            )?,
            Kind::Handshake(why) => {
                write!(
                    f,
                    "the server {server} did not answer `initialize` as it should: {why}"
                )?;
            }
            Kind::EndedAtStart(how) => {
                write!(f, "the server {server} {how} while it was being started")?;
            }
            Kind::Unreachable(why) => write!(f, "the server {server} cannot be reached: {why}")?,
            Kind::LoginNeeded { scope: None, .. } => write!(
                f,
                "the server {server} wants to know who calls: somebody has to log in"
            )?,
            Kind::LoginNeeded {
                scope: Some(scope), ..
            } => write!(f, "the server {server} wants a login that allows `{scope}`")?,
            Kind::LogIn(why) => write!(f, "no login to the server {server}: {why}")?,
            Kind::Asked(what) => write!(f, "the server {server} {what}")?,
            Kind::Lost { how, sent: true } => write!(
                f,
                "the server {server} {how} during the call; the call had reached it and may have \
                 had its effect, so it is not sent again"
            )?,
            Kind::Lost { how, sent: false } => {
                write!(
                    f,
                    "the server {server} {how} before the call had reached it"
                )?;
            }
            Kind::Protocol(what) => write!(f, "the server {server} does not speak MCP: {what}")?,
            Kind::TooLong(limit) => write!(
                f,
                "the server {server} answered with more than the {limit} bytes that one message may have"
            )?,
            Kind::Timeout(limit) => write!(
                f,
                "the server {server} did not answer within {:.1} s; the call was cancelled",
                limit.as_secs_f64()
            )?,
            Kind::Rpc { code, message, .. } => {
                write!(
                    f,
                    "the server {server} answered with error {code}: {message}"
                )?;
            }
            Kind::NoTool { name, there } => {
                write!(f, "the server {server} has no tool `{name}`; it has ")?;
                match there.as_slice() {
                    [] => f.write_str("none")?,
                    there => f.write_str(&there.join(", "))?,
                }
            }
            Kind::Drift(drift) => write!(f, "the server {server} has changed its tool {drift}")?,
            Kind::ShutDown => write!(f, "the server {server} is being shut down")?,
        }
        self.said.fmt(f)
    }
}
