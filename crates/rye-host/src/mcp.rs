//! Third-party MCP servers, and the clients of Rye's own server.

pub mod add;
mod clients;
pub mod discover;
pub mod import;
pub mod install;
pub mod list;
pub mod remove;

use std::fmt;
use std::str::FromStr;

/// Name of a server: one segment of an item id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerName(String);

impl ServerName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        match text {
            // The directory of the configurations.
            "servers" => Err("`servers` is reserved".to_owned()),
            _ if starts && text.len() <= 64 && text.chars().all(allowed) => Ok(Self(text.to_owned())),
            _ => Err("expected 1 to 64 letters, digits, `_`, `.` and `-`, starting with a letter, a digit or `_`".to_owned()),
        }
    }
}
