//! Arguments of `rye mcp`.

mod servers;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use rye_mcp::ApprovalChannel;

pub(crate) use servers::{
    AddArgs, DiscoverArgs, ImportArgs, LoginArgs, LogoutArgs, McpCallArgs, RemoveArgs,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  \
    rye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  \
    rye mcp discover files\n  \
    rye execute mcp/files/list_directory --path .\n\n\
    `rye mcp COMMAND --help` shows more.")]
pub(crate) enum McpCommand {
    /// Serve items to MCP clients
    Serve(ServeArgs),
    /// Add rye to the configuration file of an MCP client
    Install(InstallArgs),
    /// Add a server: write and sign its configuration, then test it
    #[command(
        after_help = "Values can contain variables as ${VAR}. `--secret K` asks for the value, or reads it from\n\
        standard input, stores it in the vault and writes a reference.\n\n\
        Examples:\n  \
        rye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  \
        rye mcp add search --secret API_KEY -- npx -y some-search-server\n  \
        rye mcp add docs --url https://mcp.example.org/mcp --secret Authorization"
    )]
    Add(AddArgs),
    /// List servers and how many of their tools are items
    #[command(after_help = "Example:\n  rye mcp list")]
    List,
    /// Create a signed item for each tool of a server
    #[command(
        after_help = "Each item contains the hash of its tool's definition. If the server changes the definition,\n\
        calls of the item fail until you accept the change with --accept.\n\n\
        Examples:\n  \
        rye mcp discover files\n  \
        rye mcp discover files --accept"
    )]
    Discover(DiscoverArgs),
    /// Call a tool of a server
    #[command(
        after_help = "After the tool come its parameters, as for `rye execute`.\n\n\
        Examples:\n  \
        rye mcp call files list_directory --path .\n  \
        rye mcp call files list_directory --params '{\"path\": \".\"}'\n  \
        rye mcp call files list_directory --params @parameters.json"
    )]
    Call(McpCallArgs),
    /// Log in to a server with OAuth
    #[command(
        after_help = "Prints a URL to open in a browser and waits until you have logged in. Stores the tokens\n\
        encrypted in your vault, bound to this server and address, and renews them automatically.\n\n\
        Examples:\n  \
        rye mcp login docs\n  \
        rye mcp login docs --scope 'read write'"
    )]
    Login(LoginArgs),
    /// Delete the tokens for a server
    #[command(after_help = "Example:\n  rye mcp logout docs")]
    Logout(LogoutArgs),
    /// Remove a server and the items of its tools
    #[command(after_help = "Example:\n  rye mcp remove files")]
    Remove(RemoveArgs),
    /// Add all servers from the configuration file of another client
    #[command(
        after_help = "Reads `mcpServers` (Claude Desktop, Cursor) or `servers` (VS Code). Values that look like\n\
        secrets go to the vault.\n\n\
        Example:\n  rye mcp import ~/.cursor/mcp.json"
    )]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Serves five tools, however many items exist: search, load, execute, sign, help.\n\
    Requires a token except on loopback. A token file has one token per line.\n\
    SIGTERM waits for running calls; a second SIGTERM does not.\n\n\
    Examples:\n  \
    rye mcp serve\n  \
    rye mcp serve --project ~/work/notes --approvals terminal\n  \
    rye mcp serve --http 127.0.0.1:8080\n  \
    rye mcp serve --http 0.0.0.0:8080 --token-file tokens --allow-host rye.example.org"
)]
#[expect(
    clippy::doc_markdown,
    reason = "doc comments become the help text, which is plain text"
)]
pub(crate) struct ServeArgs {
    /// Serve one client on standard input and output (default)
    #[arg(long, conflicts_with = "http")]
    pub(crate) stdio: bool,
    /// Serve HTTP clients at this address, path /mcp; port 0 selects a free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    /// File with the tokens of permitted clients [default: the token in RYE_MCP_TOKEN]
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,
    /// Host name of the server, besides localhost; can be repeated
    #[arg(long, value_name = "HOST", requires = "http")]
    pub(crate) allow_host: Vec<String>,
    /// Origin of a permitted web page, such as `https://example.org:443`; can be repeated
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origin: Vec<String>,
    /// Who approves calls: client (asks in the client if it has forms, else `rye gate`) or
    /// terminal (`rye gate` only)
    #[arg(
        long,
        value_name = "WHO",
        value_enum,
        default_value = "client",
        hide_possible_values = true
    )]
    pub(crate) approvals: ApprovalsChoice,
    /// Maximum size of a request in MiB
    #[arg(long, value_name = "N", default_value = "16", requires = "http",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) max_body: u16,
    /// Maximum requests per second and address [default: 100, unlimited on loopback]
    #[arg(long, value_name = "N", requires = "http",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: Option<u32>,
}

/// Who approves calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalsChoice {
    /// The user of the client
    Client,
    /// A user at a terminal
    Terminal,
}

impl From<ApprovalsChoice> for ApprovalChannel {
    fn from(choice: ApprovalsChoice) -> Self {
        match choice {
            ApprovalsChoice::Client => Self::Client,
            ApprovalsChoice::Terminal => Self::Terminal,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Keeps all other settings in the file. With --project, the client's server serves only that\n\
    project.\n\n\
    Examples:\n  \
    rye mcp install --client claude-code\n  \
    rye mcp install --client cursor --print"
)]
pub(crate) struct InstallArgs {
    /// Client to configure
    #[arg(long, value_name = "NAME", value_parser = crate::cli::commands::mcp::install::names())]
    pub(crate) client: String,
    /// Print what would be written, and where, but do not write it
    #[arg(long)]
    pub(crate) print: bool,
}
