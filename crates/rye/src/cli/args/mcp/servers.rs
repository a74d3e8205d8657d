//! What can be typed for the MCP servers of others.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::cli::args::vault::SpaceChoice;

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Its name: letters, digits, `_`, `.` and `-`.
    pub(crate) name: ServerName,
    /// The address of a server that is reached over HTTP.
    #[arg(long, conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// A variable for its process, besides the few that every process gets.
    #[arg(long, value_name = "K=V", value_parser = pair, conflicts_with = "url")]
    pub(crate) env: Vec<(String, String)>,
    /// A header for each request.
    #[arg(long, value_name = "K=V", value_parser = pair, requires = "url")]
    pub(crate) header: Vec<(String, String)>,
    /// A variable or header whose value goes to the vault.
    #[arg(long, value_name = "K")]
    pub(crate) secret: Option<String>,
    /// The folder it runs in, relative to the project.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) cwd: Option<String>,
    /// Where to keep it.
    #[arg(long, value_enum, default_value = "project")]
    pub(crate) space: SpaceChoice,
    /// Write over the one there is.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not start or call it now.
    #[arg(long)]
    pub(crate) no_check: bool,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The server.
    pub(crate) name: ServerName,
    /// Take what changed, and remove what is gone.
    #[arg(long)]
    pub(crate) accept: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpCallArgs {
    /// The server.
    pub(crate) name: ServerName,
    /// The tool, by its name at the server.
    pub(crate) tool: String,
    /// Parameters: JSON, `@FILE`, or `-` for standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) params: Option<String>,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::args::seconds)]
    pub(crate) timeout: Option<std::time::Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// The server.
    pub(crate) name: ServerName,
    /// What the login is to allow, besides what it allows already.
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server.
    pub(crate) name: ServerName,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The server.
    pub(crate) name: ServerName,
    /// Where it is; else in the project, then in the user space.
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file.
    pub(crate) file: PathBuf,
    /// Where to keep them.
    #[arg(long, value_enum, default_value = "project")]
    pub(crate) space: SpaceChoice,
    /// Write over those there are.
    #[arg(long)]
    pub(crate) force: bool,
}

/// The name of a server: one segment of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerName(String);

impl ServerName {
    pub(crate) fn as_str(&self) -> &str {
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
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        match text {
            // Where the configurations are.
            "servers" => Err("a server cannot be called `servers`".to_owned()),
            _ if begins && text.len() <= 64 && text.chars().all(good) => Ok(Self(text.to_owned())),
            _ => Err("a server's name has 1 to 64 letters, digits, `_`, `.` and `-`, and begins with a letter, a digit or `_`".to_owned()),
        }
    }
}

/// `K=V`. What is wrong is not repeated: it may be a secret.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it reads NAME=VALUE".to_owned()),
    }
}
