//! What can be typed for state graphs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{part_of_id, seconds};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Example:\n  rye graph run workflows/stats\n\n`rye graph COMMAND --help` shows more."
)]
pub(crate) enum GraphCommand {
    /// Say all that is wrong with graphs, each with its place.
    #[command(
        after_help = "Exits 1 when there is an error; warnings do not count.\n\n\
        Examples:\n  \
        rye graph validate workflows/stats\n  \
        rye graph validate .ai/tools/workflows/*.yaml"
    )]
    Validate(ValidateArgs),
    /// Walk a graph, or go on with a run of one.
    Run(GraphRunArgs),
    /// Take one step of a graph, and pause.
    #[command(after_help = "Examples:\n  \
        rye graph step workflows/stats\n  \
        rye graph step workflows/stats --node report --state '{\"files\": 3}'\n  \
        rye graph step --resume 20260715-101500-3f9a")]
    Step(StepArgs),
    /// Draw a graph, with what a run did coloured in.
    #[command(after_help = "Examples:\n  \
        rye graph show workflows/stats\n  \
        rye graph show workflows/stats --format svg --run 20260715-101500-3f9a >stats.svg")]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Graphs, by their ids or their files.
    #[arg(value_name = "ID|FILE", required = true)]
    pub(crate) graphs: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "rye graph run [OPTIONS] ID [--INPUT VALUE]...\n       rye graph run --resume RUN [--accept-changed] [--async]",
    after_help = "After the ID come the graph's inputs, by the names and types of its schema, as in `rye execute`.\n\
    Every step is written down before the next begins. A run that was killed, cancelled, or has\n\
    failed goes on with --resume: after the last step that was done.\n\n\
    Examples:\n  \
    rye graph run workflows/stats --directory src\n  \
    rye graph run --async workflows/stats\n  \
    rye graph run --resume 20260715-101500-3f9a"
)]
pub(crate) struct GraphRunArgs {
    /// Inputs as a JSON object, from a file or, with `-`, from standard input.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<String>,
    /// Go on with this run.
    #[arg(long, value_name = "RUN", value_parser = part_of_id, conflicts_with_all = ["params", "call"])]
    pub(crate) resume: Option<String>,
    /// Go on though the graph is not what it was when the run began.
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed: bool,
    /// Run it in the background and print the run's id: `rye run` tells of it.
    #[arg(long = "async")]
    pub(crate) background: bool,
    /// When to give up, in seconds, not counting what people take to decide.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// The graph, and its inputs.
    #[arg(value_name = "ID", required_unless_present = "resume", trailing_var_arg = true, num_args = 1..)]
    pub(crate) call: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// The graph.
    #[arg(value_name = "ID", required_unless_present = "resume")]
    pub(crate) id: Option<String>,
    /// Take a step of this run.
    #[arg(long, value_name = "RUN", value_parser = part_of_id, conflicts_with_all = ["id", "params"])]
    pub(crate) resume: Option<String>,
    /// Go on though the graph is not what it was when the run began.
    #[arg(long, requires = "resume")]
    pub(crate) accept_changed: bool,
    /// The node; else where the graph starts, or the run goes on.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// The state to begin with, or to put over that of the run.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) state: Option<String>,
    /// Inputs as a JSON object.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The graph, by its id or its file; else that of the run.
    #[arg(value_name = "ID|FILE", required_unless_present = "run")]
    pub(crate) graph: Option<String>,
    /// In which form.
    #[arg(long, value_enum, default_value = "mermaid")]
    pub(crate) format: Drawing,
    /// Colour in what this run did.
    #[arg(long, value_name = "RUN", value_parser = part_of_id)]
    pub(crate) run: Option<String>,
    /// Write it to a file.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Forms of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// For Markdown
    Mermaid,
    /// For Graphviz
    Dot,
    /// A picture
    Svg,
}
