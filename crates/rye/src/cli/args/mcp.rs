//! What can be typed for MCP.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Serve items to an MCP client.
    Serve(ServeArgs),
    /// Let a client know of this server: write its configuration file.
    Install(InstallArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Five tools are served, whatever the number of items: search, load, execute, sign, help.\n\
    On loopback no token is needed; anywhere else one is. A token file has one token a line.\n\
    SIGTERM lets running calls end; a second one does not wait.\n\n\
    Examples:\n  \
    rye mcp serve\n  \
    rye mcp serve --http 127.0.0.1:8080\n  \
    rye mcp serve --http 0.0.0.0:8080 --token-file tokens --allow-host rye.example.org"
)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are the help, which is plain text"
)]
pub(crate) struct ServeArgs {
    /// Serve one client on standard input and output. This is the default.
    #[arg(long, conflicts_with = "http")]
    pub(crate) stdio: bool,
    /// Serve many over HTTP at this address, below /mcp. Port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    /// The file with the tokens of those who may call. Else RYE_MCP_TOKEN has one.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,
    /// A name under which clients reach the server, beside localhost. May be repeated.
    #[arg(long, value_name = "HOST", requires = "http")]
    pub(crate) allow_host: Vec<String>,
    /// A web page that may call: `https://example.org:443`. May be repeated.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,
    /// The longest request, in MiB.
    #[arg(long, value_name = "N", default_value = "16", requires = "http",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) max_body: u16,
    /// How many requests a second one address may make. Else 100, on loopback any number.
    #[arg(long, value_name = "N", requires = "http",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: Option<u32>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What else is in the file stays. With --project the client's server is about that project alone.\n\n\
    Examples:\n  \
    rye mcp install --client claude-code\n  \
    rye mcp install --client cursor --print"
)]
pub(crate) struct InstallArgs {
    /// The client.
    #[arg(long, value_name = "NAME", value_parser = crate::cli::commands::mcp::install::names())]
    pub(crate) client: String,
    /// Show what would be written, and where, and write nothing.
    #[arg(long)]
    pub(crate) print: bool,
}
