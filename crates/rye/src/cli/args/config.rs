//! What can be typed for settings.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each setting with its value and origin.
    #[command(
        after_help = "An option goes before the environment, the environment before `.ai/config/rye.yaml`\n\
        (the project's before the user's before the system's), a file before the default.\n\n\
        Examples:\n  \
        rye config show\n  \
        rye config show --json | jq -r .settings.project.value"
    )]
    Show,
}
