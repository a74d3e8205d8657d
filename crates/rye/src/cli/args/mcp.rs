//! What can be typed for MCP.

mod servers;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use rye_mcp::ApprovalChannel;

pub(crate) use servers::{
    AddArgs, DiscoverArgs, ImportArgs, LoginArgs, LogoutArgs, McpCallArgs, RemoveArgs, ServerName,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  \
    rye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  \
    rye mcp discover files\n  \
    rye execute mcp/files/list_directory --path .\n\n\
    `rye mcp COMMAND --help` shows more.")]
pub(crate) enum McpCommand {
    /// Serve items to an MCP client.
    Serve(ServeArgs),
    /// Let a client know of this server: write its configuration file.
    Install(InstallArgs),
    /// Add a server: write its configuration, sign it, and see whether it answers.
    #[command(
        after_help = "A value may be text, or take variables as ${VAR}. What is secret is kept in the vault:\n\
        `--secret K` asks for it, or reads it from standard input, and writes a reference.\n\n\
        Examples:\n  \
        rye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  \
        rye mcp add search --secret API_KEY -- npx -y some-search-server\n  \
        rye mcp add docs --url https://mcp.example.org/mcp --secret Authorization"
    )]
    Add(AddArgs),
    /// List the servers, where they are, and how many of their tools are items.
    #[command(after_help = "Example:\n  rye mcp list")]
    List,
    /// Ask a server for its tools and write an item for each, signed and pinned.
    #[command(
        after_help = "What the server says of a tool is pinned by its hash. A tool that changed since is refused\n\
        when it is called, and left as it is here, until it is accepted.\n\n\
        Examples:\n  \
        rye mcp discover files\n  \
        rye mcp discover files --accept"
    )]
    Discover(DiscoverArgs),
    /// Call a tool of a server.
    #[command(after_help = "Examples:\n  \
        rye mcp call files list_directory --params '{\"path\": \".\"}'\n  \
        rye mcp call files list_directory --params @parameters.json")]
    Call(McpCallArgs),
    /// Log in to a server that wants to know who calls.
    #[command(
        after_help = "Prints an address to open in a browser, and waits until you have logged in there. The tokens\n\
        are sealed in your vault, for this server at this address alone, and made new before they end.\n\n\
        Examples:\n  \
        rye mcp login docs\n  \
        rye mcp login docs --scope 'read write'"
    )]
    Login(LoginArgs),
    /// Forget the tokens for a server.
    #[command(after_help = "Example:\n  rye mcp logout docs")]
    Logout(LogoutArgs),
    /// Remove a server's configuration and the items of its tools.
    #[command(after_help = "Example:\n  rye mcp remove files")]
    Remove(RemoveArgs),
    /// Add all servers of a file that another client uses.
    #[command(
        after_help = "The file has `mcpServers`, as those of Claude Desktop and Cursor, or `servers`, as that of\n\
        VS Code. Values that look like secrets go to the vault.\n\n\
        Example:\n  rye mcp import ~/.cursor/mcp.json"
    )]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Five tools are served, whatever the number of items: search, load, execute, sign, help.\n\
    On loopback no token is needed; anywhere else one is. A token file has one token a line.\n\
    SIGTERM lets running calls end; a second one does not wait.\n\n\
    Examples:\n  \
    rye mcp serve\n  \
    rye mcp serve --project ~/work/notes --approvals terminal\n  \
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
    /// Who approves calls that need it: client (the person at the client, where it has a form,
    /// else a terminal) or terminal (`rye gate` alone).
    #[arg(
        long,
        value_name = "WHO",
        value_enum,
        default_value = "client",
        hide_possible_values = true
    )]
    pub(crate) approvals: ApprovalsChoice,
    /// The longest request, in MiB.
    #[arg(long, value_name = "N", default_value = "16", requires = "http",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) max_body: u16,
    /// How many requests a second one address may make. Else 100, on loopback any number.
    #[arg(long, value_name = "N", requires = "http",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: Option<u32>,
}

/// Who approves calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalsChoice {
    /// The person at the client
    Client,
    /// A person at a terminal
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
