//! Arguments of `rye schedule`.

use clap::{Args, Subcommand, ValueEnum};
use rye_automation::MissedPolicy;

use super::{partial_id, thread_key};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "A running server (`rye serve`) of the project fires its schedules.\n\n\
    Example:\n  rye schedule list\n\n`rye schedule COMMAND --help` shows more."
)]
pub(crate) enum ScheduleCommand {
    /// Start a prompt or a graph at times
    #[command(
        after_help = "The expression has five fields: minute, hour, day of the month, month, day of the week. It may\n\
        use lists, ranges, steps, names (MON, JAN), L (last), W (weekday), # (MON#2), or be a nickname:\n\
        @hourly, @daily, @weekly, @monthly, @yearly.\n\n\
        A time that the clock skips when summer time begins is made up for right after; a time that\n\
        occurs twice when it ends counts once.\n\n\
        Examples:\n  \
        rye schedule add --cron '0 9 * * MON-FRI' --time-zone Europe/Berlin --prompt 'Summarise the new issues'\n  \
        rye schedule add --cron @hourly --graph workflows/stats --inputs '{\"directory\": \"src\"}' --missed once"
    )]
    Add(Box<AddScheduleArgs>),
    /// List schedules
    #[command(after_help = "Example:\n  rye schedule list")]
    List,
    /// Delete a schedule; what it has started goes on
    #[command(after_help = "Example:\n  rye schedule rm 9c1f04aa")]
    Rm(ScheduleArgs),
    /// Stop firing; firings during a pause are not made up for
    #[command(after_help = "Example:\n  rye schedule pause 9c1f04aa")]
    Pause(ScheduleArgs),
    /// Start firing again
    #[command(after_help = "Example:\n  rye schedule resume 9c1f04aa")]
    Resume(ScheduleArgs),
    /// Fire now, also if the schedule is paused
    #[command(after_help = "Example:\n  rye schedule run 9c1f04aa")]
    Run(ScheduleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// Schedule id, or a unique prefix or suffix
    #[arg(value_name = "ID", value_parser = partial_id)]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct AddScheduleArgs {
    /// Cron expression, or a nickname such as @daily
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: String,
    /// Time zone of the expression
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) time_zone: String,
    /// Name for people
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What happens to firings that were due while no server ran
    #[arg(long, value_enum, default_value = "skip")]
    pub(crate) missed: MissedChoice,
    /// Owner of the sessions that it starts
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Organisation of the owner
    #[arg(long)]
    pub(crate) org: Option<String>,
    #[command(flatten)]
    pub(crate) action: ActionArgs,
}

/// What to start.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct ActionArgs {
    /// Send this prompt to an agent
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "graph",
        required_unless_present = "graph"
    )]
    pub(crate) prompt: Option<String>,
    /// Session that gets the prompts [default: a new session each time]
    #[arg(long, value_name = "ID", value_parser = partial_id, conflicts_with = "graph")]
    pub(crate) session: Option<String>,
    /// Thread of the session that gets the prompts [default: default]
    #[arg(long, value_name = "KEY", value_parser = thread_key, conflicts_with = "graph")]
    pub(crate) thread: Option<String>,
    /// Model of the prompts
    #[arg(long, conflicts_with = "graph")]
    pub(crate) model: Option<String>,
    /// Role of the prompts
    #[arg(long, conflicts_with = "graph")]
    pub(crate) role: Option<String>,
    /// Run this graph
    #[arg(long, value_name = "ID")]
    pub(crate) graph: Option<String>,
    /// Inputs of the graph
    #[arg(long, value_name = "JSON", requires = "graph")]
    pub(crate) inputs: Option<String>,
}

/// What happens to missed firings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MissedChoice {
    /// They are skipped
    Skip,
    /// The schedule fires once
    Once,
}

impl From<MissedChoice> for MissedPolicy {
    fn from(choice: MissedChoice) -> Self {
        match choice {
            MissedChoice::Skip => Self::Skip,
            MissedChoice::Once => Self::Once,
        }
    }
}
