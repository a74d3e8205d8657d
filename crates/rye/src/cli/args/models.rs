//! Arguments of `rye models`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List models with their prices, and whether they are ready to use
    #[command(
        after_help = "Models are defined in `.ai/config/agent/models.yaml`: project over user over system,\n\
        merged field by field. A model is ready if its key is set; if it needs none, its server must\n\
        answer within half a second.\n\
        See `rye help models`.\n\n\
        Example:\n  rye models list"
    )]
    List,
    /// Send a short request to a model and measure the response time
    #[command(after_help = "Example:\n  rye models test anthropic/claude-sonnet-5-5")]
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Model, as `provider/model` [default: the default model]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}
