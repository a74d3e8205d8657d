//! Arguments of `rye acp`.

use clap::Args;
use rye_items::vault::SecretName;

use super::SandboxChoice;

#[derive(Debug, Args)]
#[command(
    after_help = "The editor starts this command, and each session works in the project of its directory.\n\
    docs/clients has the settings of Zed, JetBrains, neovim and Emacs.\n\n\
    Examples:\n  \
    rye acp\n  \
    rye acp --model anthropic/claude-sonnet-4-5 --sandbox confined\n  \
    rye acp --set-key ANTHROPIC_API_KEY"
)]
pub(crate) struct AcpArgs {
    /// Where the tools of new sessions run [default: confined, or virtual where that is impossible]
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Default model of sessions
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Ask for a secret, such as an API key, and store it in the vault instead
    #[arg(long, value_name = "NAME")]
    pub(crate) set_key: Option<SecretName>,
}
