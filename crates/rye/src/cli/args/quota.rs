//! Arguments of `rye quota`.

use clap::{Args, Subcommand, ValueEnum};
use rye_engine::quotas::Period;

use super::engine::dollars;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Quotas apply to the sessions that a server (`rye serve`) runs for a user or an organisation.\n\n\
    Example:\n  rye quota list\n\n`rye quota COMMAND --help` shows more."
)]
pub(crate) enum QuotaCommand {
    /// List quotas and what is used of them
    #[command(after_help = "Example:\n  rye quota list")]
    List,
    /// Set or replace the quota of a user or an organisation
    #[command(
        after_help = "A limit that you don't name is unlimited. `*` stands for everyone without a quota of their own,\n\
        and each of them has the whole amount.\n\n\
        Examples:\n  \
        rye quota set --user alice --spend 5 --per day --turns 4\n  \
        rye quota set --org example --tokens 100000000 --per month\n  \
        rye quota set --user '*' --turns 2 --requests 600"
    )]
    Set(SetQuotaArgs),
    /// Remove the quota of a user or an organisation
    #[command(after_help = "Example:\n  rye quota rm --user alice")]
    Rm(QuotaOwnerArgs),
}

/// Whose quota it is.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct QuotaOwnerArgs {
    /// Name of a user, or `*`
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Name of an organisation, or `*`
    #[arg(long)]
    pub(crate) org: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SetQuotaArgs {
    #[command(flatten)]
    pub(crate) owner: QuotaOwnerArgs,
    /// Input and output tokens in a period
    #[arg(long)]
    pub(crate) tokens: Option<u64>,
    /// Money in a period, in US dollars: `2.50`
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) spend: Option<u64>,
    /// When tokens and money renew, in UTC
    #[arg(long, value_enum, default_value = "day")]
    pub(crate) per: PeriodChoice,
    /// Turns that run at once
    #[arg(long)]
    pub(crate) turns: Option<u32>,
    /// Requests to a server in a minute
    #[arg(long)]
    pub(crate) requests: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PeriodChoice {
    /// At midnight
    Day,
    /// On the first of the month
    Month,
}

impl From<PeriodChoice> for Period {
    fn from(choice: PeriodChoice) -> Self {
        match choice {
            PeriodChoice::Day => Self::Day,
            PeriodChoice::Month => Self::Month,
        }
    }
}
