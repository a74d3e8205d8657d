//! Arguments of `rye execute` and `rye run`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::partial_id;

#[derive(Debug, Args)]
#[command(
    override_usage = "rye execute [OPTIONS] ID [--PARAMETER VALUE]...",
    after_help = "After the ID come the tool's parameters, named and typed by its schema:\n  \
    --name Ada        a string or a number\n  \
    --fast            a boolean; --no-fast and --fast=false set it to false\n  \
    --tag a --tag b   a list, same as --tag '[\"a\",\"b\"]'\n  \
    --filter '{}'     an object, as JSON\n\
    --user-name sets `user_name`. Write --name=VALUE if the value begins with --.\n\n\
    Options before the ID belong to rye. An option after the ID belongs to the tool if the tool's schema\n\
    has that name, otherwise to rye. After --, every option belongs to the tool.\n\n\
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
    /// Tool, followed by its parameters
    #[arg(value_name = "ID", required = true, trailing_var_arg = true, num_args = 1..)]
    pub(crate) call: Vec<String>,
}

/// Options of a call, without the parameters of the tool.
#[derive(Debug, Clone, Default, Args)]
#[expect(
    clippy::doc_markdown,
    reason = "doc comments become the help text, which is plain text"
)]
pub(crate) struct CallOptions {
    /// Parameters as a JSON object; `-` reads standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) params: Option<String>,
    /// Check that the tool would run, but do not run it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Trace how the call is resolved, on standard error (also RYE_DEBUG=1); `--trace=all` adds
    /// inherited variables
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
    /// Run in the background and print the run id (see `rye run`)
    #[arg(long = "async")]
    pub(crate) background: bool,
    /// Timeout in seconds [default: set by the tool]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// `confined`: let the kernel confine the tool's process, even if the tool does not declare it
    #[arg(
        long,
        value_enum,
        value_name = "SANDBOX",
        hide_possible_values = true,
        conflicts_with = "background"
    )]
    pub(crate) sandbox: Option<ToolSandboxChoice>,
}

/// Where a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolSandboxChoice {
    /// In the project, confined by the kernel, without network
    Confined,
}

/// How much detail a trace shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceChoice {
    /// How the call is resolved
    Steps,
    /// The same, with all inherited variables
    All,
}

/// Parses a positive number of seconds, with an optional fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or("expected a number of seconds above 0, such as 30 or 0.5")
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  rye run list\n\n`rye run COMMAND --help` shows more.")]
pub(crate) enum RunCommand {
    /// List runs, newest first
    #[command(
        after_help = "States: running, waiting (for a decision), completed, failed, cancelled, interrupted (by a signal),\n\
        timed_out, paused, limit (stopped at a limit of the graph), lost (its process died).\n\n\
        Example:\n  rye run list"
    )]
    List,
    /// Show the state and result of a run
    #[command(after_help = "Example:\n  rye run status 500-3f9a")]
    Status(RunArgs),
    /// Print the output of a run; for a graph, its steps
    #[command(after_help = "Example:\n  rye run tail 500-3f9a --follow")]
    Tail(TailArgs),
    /// Cancel a run and all its processes
    #[command(after_help = "Example:\n  rye run cancel 500-3f9a")]
    Cancel(RunArgs),
    /// Delete a finished run
    #[command(after_help = "Example:\n  rye run rm 500-3f9a")]
    Rm(RunArgs),
    /// Verify the record of a run, like `rye session verify`
    #[command(after_help = "Example:\n  rye run verify 500-3f9a")]
    Verify(RunArgs),
    /// Runs a background run that was recorded before; started by `rye execute --async`
    #[command(hide = true)]
    CarryOut(CarryOutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Run id, or a unique prefix or suffix
    #[arg(value_parser = partial_id)]
    pub(crate) id: String,
}

/// How to execute a recorded run.
#[derive(Debug, Args)]
pub(crate) struct CarryOutArgs {
    pub(crate) id: String,
    /// Time limit in seconds.
    #[arg(long)]
    pub(crate) timeout: Option<f64>,
    /// The run was requested by an MCP client, so tools that need an approval do not run.
    #[arg(long)]
    pub(crate) for_client: bool,
    /// Continue a graph run.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Continue although the graph has changed.
    #[arg(long)]
    pub(crate) accept_changed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Follow the output until the run ends
    #[arg(long, short)]
    pub(crate) follow: bool,
}
