//! What can be typed to run a tool, and for runs in the background.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::part_of_id;

#[derive(Debug, Args)]
#[command(
    override_usage = "rye execute [OPTIONS] ID [--PARAMETER VALUE]...",
    after_help = "After the ID come the tool's parameters, by the names and types of its schema:\n  \
    --name Ada        a text or a number\n  \
    --fast            a boolean; --no-fast and --fast=false are its opposite\n  \
    --tag a --tag b   a list; --tag '[\"a\",\"b\"]' is the same\n  \
    --filter '{}'     an object, in JSON\n\
    `user_name` may be typed --user-name. A value that begins with -- is typed --name=VALUE.\n\n\
    Options before the ID are rye's. After it, a name that the tool has is the tool's, and only\n\
    else rye's; after a lone -- all are the tool's.\n\n\
    Examples:\n  \
    rye execute hello --help\n  \
    rye execute hello --name Ada\n  \
    rye execute hello --params '{\"name\": \"Ada\"}' --json\n  \
    generate | rye execute --timeout 60 --params - report\n  \
    rye execute --async report --month 5"
)]
pub(crate) struct ExecuteArgs {
    #[command(flatten)]
    pub(crate) options: CallOptions,
    /// The tool, and its parameters.
    #[arg(value_name = "ID", required = true, trailing_var_arg = true, num_args = 1..)]
    pub(crate) call: Vec<String>,
}

/// The options of a call, apart from the parameters of its tool.
#[derive(Debug, Clone, Default, Args)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are the help, which is plain text"
)]
pub(crate) struct CallOptions {
    /// Parameters as a JSON object, from a file or, with `-`, from standard input.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<String>,
    /// Find out whether it would run, and run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show on standard error how it comes to run. Also with RYE_DEBUG=1. `--trace=all` lists
    /// inherited variables too.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "steps",
        hide_possible_values = true
    )]
    pub(crate) trace: Option<TraceChoice>,
    /// Run it in the background and print the run's id: `rye run` tells of it.
    #[arg(long = "async")]
    pub(crate) background: bool,
    /// When to give up, in seconds. Else as the tool says.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

/// How much of the way of a call is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceChoice {
    /// What was decided
    Steps,
    /// And all variables
    All,
}

/// Reads a number of seconds, with a fraction where wanted.
pub(crate) fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or("it is a number of seconds above 0, such as 30 or 0.5")
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  rye run list\n\n`rye run COMMAND --help` shows more.")]
pub(crate) enum RunCommand {
    /// List the runs, the newest first.
    #[command(
        after_help = "A run is running, success, error, cancelled, or lost: gone without a result.\n\
        One of a graph may also be waiting, completed, failed, limit, timed_out, or paused.\n\n\
        Example:\n  rye run list"
    )]
    List,
    /// Show a run: how it stands, and its result.
    #[command(after_help = "Example:\n  rye run status 20260715-101500-3f9a")]
    Status(RunArgs),
    /// Print what a run has printed so far; of a graph, what it has done.
    #[command(after_help = "Example:\n  rye run tail 20260715-101500-3f9a --follow")]
    Tail(TailArgs),
    /// End a run, and all that it has started.
    #[command(after_help = "Example:\n  rye run cancel 20260715-101500-3f9a")]
    Cancel(RunArgs),
    /// Remove a run that is over: its result and what it printed.
    #[command(after_help = "Example:\n  rye run rm 20260715-101500-3f9a")]
    Rm(RunArgs),
    /// Check that the record of a graph's run is as it was signed.
    #[command(after_help = "Example:\n  rye run verify 20260715-101500-3f9a")]
    Verify(RunArgs),
    /// Carries out a run that was written down.
    #[command(hide = true)]
    CarryOut(RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The run's id, or as much of its beginning as no other has.
    #[arg(value_parser = part_of_id)]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Go on until the run has ended.
    #[arg(long, short)]
    pub(crate) follow: bool,
}
