//! Arguments of `rye keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lillux::keys::Fingerprint;

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  rye keys list\n\n`rye keys COMMAND --help` shows more.")]
pub(crate) enum KeysCommand {
    /// Generate your signing key and trust it
    #[command(after_help = "Example:\n  rye keys generate --owner 'Ada Lovelace'")]
    Generate(GenerateArgs),
    /// List trusted keys, and keys that are ignored or revoked
    #[command(after_help = "Example:\n  rye keys list")]
    List,
    /// Trust a key, so that items it signed run
    #[command(
        after_help = "FILE is a public key (PEM) or a trust file. Compare the fingerprint with its owner over\n\
        another channel. Asks for confirmation; without a terminal, --yes is required.\n\n\
        Examples:\n  \
        rye keys trust ada.pem --owner 'Ada Lovelace'\n  \
        rye keys trust .ai/config/keys/trusted/6ea18199041a1ea8.toml"
    )]
    Trust(TrustArgs),
    /// Revoke a key, so that items it signed no longer run
    #[command(after_help = "Examples:\n  \
        rye keys revoke 6ea18199041a1ea8 --reason 'laptop lost'\n\n\
        To undo: rm ~/.ai/config/keys/revoked/6ea18199041a1ea8.toml")]
    Revoke(RevokeArgs),
    /// Show your public key
    #[command(after_help = "Examples:\n  \
        rye keys show\n  \
        rye keys show --json | jq -r .public_key >me.pem")]
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Owner name in the key's trust file [default: USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Replace the existing key; its private key is lost for good
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Public key (PEM) or trust file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Owner name [default: from the file]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Fingerprint of the key, 16 hexadecimal characters
    pub(crate) fingerprint: Fingerprint,
    /// Reason, stored with the revocation
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do not ask for confirmation, even for your own key
    #[arg(long, short)]
    pub(crate) yes: bool,
}
