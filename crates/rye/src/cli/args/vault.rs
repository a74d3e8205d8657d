//! Arguments of `rye vault`.

use clap::{Args, Subcommand, ValueEnum};
use rye_items::Space;
use rye_items::vault::SecretName;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Example:\n  printf %s \"$TOKEN\" | rye vault set API_TOKEN\n\n`rye vault COMMAND --help` shows more."
)]
pub(crate) enum VaultCommand {
    /// Store a secret, replacing an existing one
    #[command(
        after_help = "Reads the value from standard input, byte for byte, or asks for it on a terminal without\n\
        echo. A value is never an argument, because other users can see arguments.\n\n\
        Examples:\n  \
        rye vault set API_TOKEN\n  \
        printf %s \"$TOKEN\" | rye vault set API_TOKEN\n  \
        rye vault set TLS_KEY --space project <key.pem\n\n\
        Only for the tools of one session:\n  \
        rye vault set GITHUB --session 4d1f83a2"
    )]
    Set(SetArgs),
    /// Decrypt a secret and write it to a pipe or file, byte for byte
    #[command(after_help = "Examples:\n  \
        curl -H \"Authorization: Bearer $(rye vault get API_TOKEN)\" https://api.example.org\n  \
        rye vault get API_TOKEN --show")]
    Get(GetArgs),
    /// Log in to a service and store its token for agents
    #[command(
        after_help = "The services are in `.ai/config/agent/oauth.yaml`. Prints a link, and waits up to ten minutes.\n\n\
        Examples:\n  \
        rye vault login github\n  \
        rye vault login github --device"
    )]
    Login(LoginServiceArgs),
    /// List the names of secrets
    #[command(after_help = "Example:\n  rye vault list")]
    List(ListArgs),
    /// Remove a secret
    #[command(after_help = "Example:\n  rye vault rm API_TOKEN --space project")]
    Rm(RmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Name: letters, digits, `_`, `.` and `-`, starting with a letter or `_`
    pub(crate) name: SecretName,
    /// Space to store it in
    #[arg(long, value_enum, default_value = "user", conflicts_with_all = ["session", "org", "oauth"])]
    pub(crate) space: SpaceChoice,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    /// Store an OAuth token, which is renewed automatically. The value is a JSON document with
    /// `access_token`, `refresh_token`, `expires_in`, `token_url` and `client_id`
    #[arg(long)]
    pub(crate) oauth: bool,
}

/// Owner of a credential for agents' tools; without one, the secret is the user's.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OwnerArgs {
    /// Credential of this session only (id, or unique prefix or suffix)
    #[arg(long, value_name = "ID", value_parser = super::partial_id)]
    pub(crate) session: Option<String>,
    /// Credential of all sessions of this organisation
    #[arg(long, value_name = "NAME")]
    pub(crate) org: Option<String>,
}

impl OwnerArgs {
    pub(crate) fn is_set(&self) -> bool {
        self.session.is_some() || self.org.is_some()
    }
}

#[derive(Debug, Args)]
pub(crate) struct LoginServiceArgs {
    /// Name of the service
    pub(crate) service: SecretName,
    /// Log in with a code, in a browser on any machine
    #[arg(long)]
    pub(crate) device: bool,
    /// Scopes to request instead of the configured ones
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Name of the secret
    pub(crate) name: SecretName,
    /// Look only in this space [default: project, then user]
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
    /// Print the secret even if standard output is a terminal
    #[arg(long)]
    pub(crate) show: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// List only this space
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Name of the secret
    pub(crate) name: SecretName,
    /// Space of the secret; required if both spaces have it
    #[arg(long, value_enum, conflicts_with_all = ["session", "org", "oauth"])]
    pub(crate) space: Option<SpaceChoice>,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    /// Remove an OAuth token
    #[arg(long)]
    pub(crate) oauth: bool,
}

/// A writable space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpaceChoice {
    /// Your own space
    User,
    /// The project's space
    Project,
}

impl From<SpaceChoice> for Space {
    fn from(choice: SpaceChoice) -> Self {
        match choice {
            SpaceChoice::User => Self::User,
            SpaceChoice::Project => Self::Project,
        }
    }
}
