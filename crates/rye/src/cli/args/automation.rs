//! Arguments of `rye schedule`, `rye webhook` and `rye hook`.

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

#[derive(Debug, Subcommand)]
#[command(after_help = "A running server (`rye serve`) sends the events.\n\n\
    Example:\n  rye webhook list\n\n`rye webhook COMMAND --help` shows more.")]
pub(crate) enum WebhookCommand {
    /// Send events of the project's sessions to a URL
    #[command(
        after_help = "What is sent is signed as Standard Webhooks defines it, with the secret that is printed once.\n\
        Without --event, all events are sent; the protocol's schema lists them.\n\n\
        Examples:\n  \
        rye webhook add https://example.org/rye --event turn_end --event decision_gate\n  \
        rye webhook add http://127.0.0.1:9000/ --allow-private"
    )]
    Add(AddWebhookArgs),
    /// List webhooks, without their secrets
    #[command(after_help = "Example:\n  rye webhook list")]
    List,
    /// Delete a webhook; what was not delivered is not sent any more
    #[command(after_help = "Example:\n  rye webhook rm 9c1f04aa")]
    Rm(WebhookArgs),
    /// List what was sent to a webhook, newest first
    #[command(after_help = "Example:\n  rye webhook deliveries 9c1f04aa")]
    Deliveries(DeliveriesArgs),
    /// Send an event again, with the same id
    #[command(after_help = "Examples:\n  \
        rye webhook replay 9c1f04aa msg_9c1f04aa_019aa5b1f0c3f2a90b1c2d3e4f5\n  \
        rye webhook replay 9c1f04aa --failed")]
    Replay(ReplayDeliveryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddWebhookArgs {
    /// Where events are sent
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Type of event to send; repeatable [default: all]
    #[arg(long = "event", value_name = "TYPE")]
    pub(crate) events: Vec<String>,
    /// Name for people
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Permit addresses that are not public
    #[arg(long)]
    pub(crate) allow_private: bool,
    /// Only events of this user's sessions
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Only events of this organisation's sessions
    #[arg(long)]
    pub(crate) org: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookArgs {
    /// Webhook id, or a unique prefix or suffix
    #[arg(value_name = "ID", value_parser = partial_id)]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeliveriesArgs {
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    /// Number of deliveries
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayDeliveryArgs {
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    /// Delivery id, or a unique prefix or suffix
    #[arg(value_name = "DELIVERY", value_parser = partial_id, required_unless_present = "failed")]
    pub(crate) delivery: Option<String>,
    /// Send all deliveries again that have failed
    #[arg(long, conflicts_with = "delivery")]
    pub(crate) failed: bool,
}

#[derive(Debug, Subcommand)]
#[command(
    after_help = "A running server (`rye serve`) accepts the requests, at /api/hooks/ID.\n\n\
    Example:\n  rye hook list\n\n`rye hook COMMAND --help` shows more."
)]
pub(crate) enum HookCommand {
    /// Start a prompt or a graph when a signed request arrives
    #[command(
        after_help = "The body of the request is added to the prompt, or is the input `payload` of the graph.\n\
        Requests are signed as Standard Webhooks defines it, with the secret that is printed once.\n\n\
        Examples:\n  \
        rye hook add --prompt 'Triage this issue'\n  \
        rye hook add --graph workflows/deploy"
    )]
    Add(Box<AddHookArgs>),
    /// List hooks, without their secrets
    #[command(after_help = "Example:\n  rye hook list")]
    List,
    /// Delete a hook
    #[command(after_help = "Example:\n  rye hook rm 9c1f04aa")]
    Rm(HookArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddHookArgs {
    /// Name for people
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Owner of the sessions that it starts
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Organisation of the owner
    #[arg(long)]
    pub(crate) org: Option<String>,
    #[command(flatten)]
    pub(crate) action: ActionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct HookArgs {
    /// Hook id, or a unique prefix or suffix
    #[arg(value_name = "ID", value_parser = partial_id)]
    pub(crate) id: String,
}
