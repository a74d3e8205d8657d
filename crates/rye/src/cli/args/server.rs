//! Arguments of `rye serve` and `rye token`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use rye_server::Scope;

use super::{SandboxChoice, partial_id, seconds};

/// Address of the server without an option.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7933";

#[derive(Debug, Args)]
#[command(
    after_help = "Every request needs a token, also on this machine. The link that is printed logs a browser in,\n\
    once and within a minute.\n\n\
    Examples:\n  \
    rye serve\n  \
    rye serve --addr 127.0.0.1:0 --json\n  \
    rye serve --addr 0.0.0.0:7933 --public-url https://rye.example.org\n\n\
    In another terminal:\n  \
    token=$(rye token create --name script --scope read --scope prompt)\n  \
    curl -H \"Authorization: Bearer $token\" http://127.0.0.1:7933/api/sessions"
)]
pub(crate) struct ServeHttpArgs {
    /// Address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    pub(crate) addr: SocketAddr,
    /// URL under which clients reach the server, if a proxy is in front of it
    #[arg(long, value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,
    /// Additional host name under which the server may be called; repeatable
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Origin of a web page on another host that may call the server; repeatable
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Maximum size of a request, in MiB
    #[arg(long, value_name = "MIB", default_value = "16")]
    pub(crate) max_body: u16,
    /// Requests of a token that are accepted in a second
    #[arg(long, value_name = "REQUESTS", default_value = "1000", value_parser = value_parser!(u32).range(1..))]
    pub(crate) max_rate: u32,
    /// How long a shutdown waits for running model calls and tools
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,
    /// After which time without work a session is closed in memory
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub(crate) idle_after: Duration,
    /// Directory that sessions may have as their project, with the directories below it; repeatable
    /// [default: only the current project]
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) allow_project: Vec<PathBuf>,
    /// Where the tools of new sessions run [default: confined in a project, virtual elsewhere]
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Default model of sessions
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Accept tokens of this OpenID Connect issuer
    #[arg(long, value_name = "URL", requires = "oidc_audience")]
    pub(crate) oidc_issuer: Option<String>,
    /// Audience that these tokens must have
    #[arg(long, value_name = "AUDIENCE", requires = "oidc_issuer")]
    pub(crate) oidc_audience: Option<String>,
    /// Claim that names the user
    #[arg(
        long,
        value_name = "CLAIM",
        default_value = "sub",
        requires = "oidc_issuer"
    )]
    pub(crate) oidc_user_claim: String,
    /// Claim that names the organisation
    #[arg(
        long,
        value_name = "CLAIM",
        default_value = "org",
        requires = "oidc_issuer"
    )]
    pub(crate) oidc_org_claim: String,
    /// Claim that lists scopes, with or without the prefix `rye:`
    #[arg(
        long,
        value_name = "CLAIM",
        default_value = "scope",
        requires = "oidc_issuer"
    )]
    pub(crate) oidc_scope_claim: String,
    /// Scope of tokens that list none; repeatable
    #[arg(
        long = "oidc-scope",
        value_enum,
        value_name = "SCOPE",
        requires = "oidc_issuer"
    )]
    pub(crate) oidc_scopes: Vec<ScopeChoice>,
}

/// Parses the path of a directory that exists.
fn directory(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text).canonicalize();
    let path = path.map_err(|error| error.to_string())?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err("not a directory".to_owned())
    }
}

/// Parses the URL of a server.
fn public_url(text: &str) -> Result<String, &'static str> {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    match host {
        Some(host) if !host.is_empty() && !host.contains('/') => Ok(text.to_owned()),
        _ => Err("expected a URL without a path, such as https://rye.example.org"),
    }
}

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Example:\n  rye token create --name script --scope read\n\n`rye token COMMAND --help` shows more."
)]
pub(crate) enum TokenCommand {
    /// Create a token for the HTTP server and print its secret
    #[command(
        after_help = "The secret is shown only once; the database has only its hash. Without --user and --org, the\n\
        token gives access to all sessions.\n\n\
        Examples:\n  \
        rye token create --name script --scope read --scope prompt\n  \
        rye token create --name ada --user ada --org acme --scope read --scope prompt --scope decide\n  \
        rye token create --name ci --scope prompt --expires-in 3600"
    )]
    Create(CreateTokenArgs),
    /// List valid tokens, without their secrets
    #[command(after_help = "Example:\n  rye token list")]
    List,
    /// Revoke a token
    #[command(after_help = "Example:\n  rye token revoke Zk3v81xQ")]
    Revoke(RevokeTokenArgs),
    /// Print a link that logs a browser in, once and within a minute
    #[command(after_help = "Example:\n  rye token login --url http://127.0.0.1:7933")]
    Login(LoginLinkArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateTokenArgs {
    /// Name of the program or person that uses it
    #[arg(long)]
    pub(crate) name: String,
    /// What it permits; repeatable
    #[arg(long = "scope", value_enum, value_name = "SCOPE", required = true)]
    pub(crate) scopes: Vec<ScopeChoice>,
    /// User whose sessions it gives access to
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Organisation whose sessions it gives access to
    #[arg(long)]
    pub(crate) org: Option<String>,
    /// Give access to the current project only
    #[arg(long)]
    pub(crate) only_this_project: bool,
    /// How long it is valid [default: until it is revoked]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) expires_in: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeTokenArgs {
    /// Id of the token, or unique prefix or suffix
    #[arg(value_name = "ID", value_parser = partial_id)]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct LoginLinkArgs {
    /// URL of the server
    #[arg(long, value_name = "URL", value_parser = public_url, default_value = "http://127.0.0.1:7933")]
    pub(crate) url: String,
}

/// What a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeChoice {
    /// Read sessions, gates and items
    Read,
    /// Create sessions, send prompts, control threads and run items
    Prompt,
    /// Decide gates
    Decide,
    /// Everything, and manage tokens
    Admin,
}

impl From<ScopeChoice> for Scope {
    fn from(choice: ScopeChoice) -> Self {
        match choice {
            ScopeChoice::Read => Self::Read,
            ScopeChoice::Prompt => Self::Prompt,
            ScopeChoice::Decide => Self::Decide,
            ScopeChoice::Admin => Self::Admin,
        }
    }
}
