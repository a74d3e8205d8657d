//! Arguments of `rye graph`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{partial_id, seconds};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Example:\n  rye graph run workflows/stats\n\n`rye graph COMMAND --help` shows more."
)]
pub(crate) enum GraphCommand {
    /// Report all errors in graphs, with their positions
    #[command(
        after_help = "Exits 1 if a graph has errors; warnings do not count.\n\n\
        Examples:\n  \
        rye graph validate workflows/stats\n  \
        rye graph validate .ai/tools/workflows/*.yaml"
    )]
    Validate(ValidateArgs),
    /// Run a graph, or resume a run
    Run(GraphRunArgs),
    /// Run one step of a graph, then pause
    #[command(after_help = "Examples:\n  \
        rye graph step workflows/stats\n  \
        rye graph step workflows/stats --node report --state '{\"files\": 3}'\n  \
        rye graph step --resume 500-3f9a")]
    Step(StepArgs),
    /// Draw a graph, optionally with the path of a run
    #[command(after_help = "Examples:\n  \
        rye graph show workflows/stats\n  \
        rye graph show workflows/stats --format svg --run 500-3f9a >stats.svg")]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Graph ids or files
    #[arg(value_name = "ID|FILE", required = true)]
    pub(crate) graphs: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "rye graph run [OPTIONS] ID [--INPUT VALUE]...\n       rye graph run --resume RUN [--accept-changed] [--async]",
    after_help = "After the ID come the graph's inputs, named and typed by its schema, as in `rye execute`.\n\
    Each step is recorded before the next begins. --resume continues a killed, cancelled or failed\n\
    run after its last completed step.\n\n\
    Examples:\n  \
    rye graph run workflows/stats --directory src\n  \
    rye graph run --async workflows/stats\n  \
    rye graph run --resume 500-3f9a"
)]
pub(crate) struct GraphRunArgs {
    /// Inputs as a JSON object; `-` reads standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<String>,
    /// Resume this run
    #[arg(long, value_name = "RUN", value_parser = partial_id, conflicts_with_all = ["params", "call"])]
    pub(crate) resume: Option<String>,
    /// Resume although the graph has changed since the run began
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed: bool,
    /// Run in the background and print the run id (see `rye run`)
    #[arg(long = "async")]
    pub(crate) background: bool,
    /// Timeout in seconds, not counting time spent waiting for decisions
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Graph, followed by its inputs
    #[arg(value_name = "ID", required_unless_present = "resume", trailing_var_arg = true, num_args = 1..)]
    pub(crate) call: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Graph id
    #[arg(value_name = "ID", required_unless_present = "resume")]
    pub(crate) id: Option<String>,
    /// Continue this run
    #[arg(long, value_name = "RUN", value_parser = partial_id, conflicts_with_all = ["id", "params"])]
    pub(crate) resume: Option<String>,
    /// Continue although the graph has changed since the run began
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed: bool,
    /// Node to run [default: the next node, or the start of the graph]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// State to start with; its keys override those of the run's state
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) state: Option<String>,
    /// Inputs as a JSON object
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Graph id or file [default: the graph of the run]
    #[arg(value_name = "ID|FILE", required_unless_present = "run")]
    pub(crate) graph: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "mermaid")]
    pub(crate) format: Drawing,
    /// Highlight what this run did
    #[arg(long, value_name = "RUN", value_parser = partial_id)]
    pub(crate) run: Option<String>,
    /// File to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Output format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// For Markdown
    Mermaid,
    /// For Graphviz
    Dot,
    /// SVG image
    Svg,
}
