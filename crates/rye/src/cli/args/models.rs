//! What can be typed for models.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the models that there are, what they cost, and whether they can be asked.
    #[command(
        after_help = "They are in `.ai/config/agent/models.yaml` of the project, of your own space and of\n\
        the system, the first over the next: see `rye help models`.\n\n\
        Example:\n  rye models list"
    )]
    List,
    /// Ask a model something small, and say how long it took or what to put right.
    #[command(after_help = "Example:\n  rye models test anthropic/claude-sonnet-5-5")]
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The model, as `provider/model`. Else the default.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}
