//! What can be typed for secrets.

use clap::{Args, Subcommand, ValueEnum};
use rye_items::Space;
use rye_items::vault::SecretName;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Example:\n  printf %s \"$TOKEN\" | rye vault set API_TOKEN\n\n`rye vault COMMAND --help` shows more."
)]
pub(crate) enum VaultCommand {
    /// Seal a secret under a name, in place of the one it had.
    #[command(
        after_help = "The value comes from standard input, byte for byte, or is asked for on a terminal,\n\
        where it is not shown. It is never an argument: others can see those.\n\n\
        Examples:\n  \
        rye vault set API_TOKEN\n  \
        printf %s \"$TOKEN\" | rye vault set API_TOKEN\n  \
        rye vault set TLS_KEY --space project <key.pem\n  \
        rye vault set GITHUB --session 01a1… # for the tools of one session"
    )]
    Set(SetArgs),
    /// Open a secret and write it to a pipe or a file, byte for byte.
    #[command(after_help = "Examples:\n  \
        rye vault get API_TOKEN | pbcopy\n  \
        curl -H \"Authorization: Bearer $(rye vault get API_TOKEN)\" https://api.example.org\n  \
        rye vault get API_TOKEN --show")]
    Get(GetArgs),
    /// List the names, never the values.
    #[command(after_help = "Example:\n  rye vault list")]
    List(ListArgs),
    /// Remove a secret.
    #[command(after_help = "Example:\n  rye vault rm API_TOKEN --space project")]
    Rm(RmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Letters, digits, `_`, `.` and `-`; the first is a letter or `_`.
    pub(crate) name: SecretName,
    /// Where to keep it.
    #[arg(long, value_enum, default_value = "user", conflicts_with_all = ["session", "org", "oauth"])]
    pub(crate) space: SpaceChoice,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    /// The value is a JSON document with `access_token`, `refresh_token`, `expires_in`,
    /// `token_url` and `client_id`: an OAuth token, which is renewed before it ends.
    #[arg(long)]
    pub(crate) oauth: bool,
}

/// Whose credential it is, for the tools of agents. Else the person's own.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OwnerArgs {
    /// For this session alone: its id, or the beginning or the end of it.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// For all sessions of this organisation.
    #[arg(long, value_name = "NAME")]
    pub(crate) org: Option<String>,
}

impl OwnerArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.session.is_some() || self.org.is_some()
    }
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The secret's name.
    pub(crate) name: SecretName,
    /// Look only here. Else in the project, then in the user space.
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
    /// Show the secret also on a terminal.
    #[arg(long)]
    pub(crate) show: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// List only this space.
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The secret's name.
    pub(crate) name: SecretName,
    /// Where it is; needed where both spaces have one of that name.
    #[arg(long, value_enum, conflicts_with_all = ["session", "org", "oauth"])]
    pub(crate) space: Option<SpaceChoice>,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    /// It is an OAuth token.
    #[arg(long)]
    pub(crate) oauth: bool,
}

/// A space that can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpaceChoice {
    /// The person's own
    User,
    /// The project's
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
