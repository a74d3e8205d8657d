//! Arguments of `rye config`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show each setting with its value and origin
    #[command(
        after_help = "Precedence: options, environment, `.ai/config/rye.yaml` (project, user, system), defaults.\n\n\
        Examples:\n  \
        rye config show\n  \
        rye config show --json | jq -r .settings.project.value"
    )]
    Show,
    /// List the environment variables that rye reads, and those it passes to tools
    #[command(
        after_help = "Lists the variables that the built-in runtimes pass to tools. A runtime of a project can add\n\
        more.\n\n\
        Examples:\n  \
        rye config variables\n  \
        rye config variables --json | jq -r '.given[].name'"
    )]
    Variables,
    /// Accept the project's agent configuration for this directory
    #[command(
        after_help = "A project's files in `.ai/config/agent/` (approvals, commands, models, compaction) take\n\
        effect only after you accept them. Signing a file also accepts it. Accept again after a change, or\n\
        for a copy in another directory.\n\n\
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
