//! What can be typed for keys.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lillux::keys::Fingerprint;

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  rye keys list\n\n`rye keys COMMAND --help` shows more.")]
pub(crate) enum KeysCommand {
    /// Make your signing key, and trust it.
    #[command(after_help = "Example:\n  rye keys generate --owner 'Ada Lovelace'")]
    Generate(GenerateArgs),
    /// List the keys that count, and those that do not and why.
    #[command(after_help = "Example:\n  rye keys list")]
    List,
    /// Trust a key: what it has signed then runs.
    #[command(
        after_help = "The file is a public key (PEM) or a trust file. Compare the fingerprint with the one its\n\
        owner tells you by other means. It is asked for on a terminal; elsewhere --yes is needed.\n\n\
        Examples:\n  \
        rye keys trust ada.pem --owner 'Ada Lovelace'\n  \
        rye keys trust .ai/config/keys/trusted/6ea18199041a1ea8.toml"
    )]
    Trust(TrustArgs),
    /// Revoke a key: nothing that it has signed runs any more.
    #[command(after_help = "Examples:\n  \
        rye keys revoke 6ea18199041a1ea8 --reason 'laptop lost'\n\n\
        To take it back: rm ~/.ai/config/keys/revoked/6ea18199041a1ea8.toml")]
    Revoke(RevokeArgs),
    /// Show your own public key, to give to others.
    #[command(after_help = "Examples:\n  \
        rye keys show\n  \
        rye keys show --json | jq -r .public_key >me.pem")]
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Whose key it is, in the words of its trust file. Else USER.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Replace a key that is there. The old private key is gone for good.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// A public key (PEM), or a trust file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Whose key it is. Else as the file says.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The key's fingerprint, 16 hex characters.
    pub(crate) fingerprint: Fingerprint,
    /// Why, for those who will ask.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do not ask, also when it is your own key.
    #[arg(long, short)]
    pub(crate) yes: bool,
}
