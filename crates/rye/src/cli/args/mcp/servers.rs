//! Arguments of the `rye mcp` commands about third-party servers.

use std::path::PathBuf;

use clap::Args;
use rye_host::mcp::ServerName;

use crate::cli::args::vault::SpaceChoice;

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Name: letters, digits, `_`, `.` and `-`
    pub(crate) name: ServerName,
    /// URL of an HTTP server
    #[arg(long, conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// Environment variable of the server process; can be repeated
    #[arg(long, value_name = "K=V", value_parser = pair, conflicts_with = "url")]
    pub(crate) env: Vec<(String, String)>,
    /// HTTP header of each request; can be repeated
    #[arg(long, value_name = "K=V", value_parser = pair, requires = "url")]
    pub(crate) header: Vec<(String, String)>,
    /// Variable or header whose value is stored in the vault
    #[arg(long, value_name = "K")]
    pub(crate) secret: Option<String>,
    /// Working directory of the server, relative to the project
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) cwd: Option<String>,
    /// Space to write the configuration to
    #[arg(long, value_enum, default_value = "project")]
    pub(crate) space: SpaceChoice,
    /// Overwrite an existing server
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not start or call the server now
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Program and its arguments
    #[arg(last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// Name of the server
    pub(crate) name: ServerName,
    /// Accept changed tools and remove items of tools that no longer exist
    #[arg(long)]
    pub(crate) accept: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "rye mcp call [OPTIONS] NAME TOOL [--PARAMETER VALUE]...")]
pub(crate) struct McpCallArgs {
    /// Parameters as a JSON object, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) params: Option<String>,
    /// Timeout in seconds
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::args::seconds)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// Name of the server
    pub(crate) name: ServerName,
    /// Name of the tool on the server, followed by its parameters
    #[arg(value_name = "TOOL", required = true, trailing_var_arg = true, num_args = 1..)]
    pub(crate) call: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Name of the server
    pub(crate) name: ServerName,
    /// Additional OAuth scopes to request
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// Name of the server
    pub(crate) name: ServerName,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Name of the server
    pub(crate) name: ServerName,
    /// Space of the server [default: project, then user]
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Configuration file to read
    pub(crate) file: PathBuf,
    /// Space to write the configuration to
    #[arg(long, value_enum, default_value = "project")]
    pub(crate) space: SpaceChoice,
    /// Overwrite existing servers
    #[arg(long)]
    pub(crate) force: bool,
}

/// Parses `NAME=VALUE`. The error does not repeat the text, which may be a secret.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
