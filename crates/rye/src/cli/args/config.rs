//! What can be typed for settings.

use clap::{Args, Subcommand};

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
    /// Print the variables of the environment that are read, and those that tools are given.
    #[command(
        after_help = "What a tool is given comes from the runtimes that ship with rye; a runtime of a\n\
        project adds its own.\n\n\
        Examples:\n  \
        rye config variables\n  \
        rye config variables --json | jq -r '.given[].name'"
    )]
    Variables,
    /// Accept the project's configuration of agents for this directory.
    #[command(
        after_help = "What a project's files in `.ai/config/agent/` allow, and the models and programs that\n\
        they name, count only where you have accepted them. Signing a file accepts it, too.\n\
        A file that was changed, or a copy of it in another directory, is accepted anew.\n\n\
        Examples:\n  \
        rye config accept\n  \
        rye config accept --yes"
    )]
    Accept(AcceptArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    /// Accept without asking
    #[arg(long)]
    pub(crate) yes: bool,
}
