//! Arguments of the commands that control sessions and watch them.

use clap::Args;

use super::{GateArgs, SessionArgs, thread_key};

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Only this thread [default: all threads]
    #[arg(long, value_name = "KEY", value_parser = thread_key)]
    pub(crate) thread: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Start after the event with this number; 0 for all [default: only new events]
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Exit once nothing runs in the session
    #[arg(long)]
    pub(crate) until_idle: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WithdrawGateArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// Why, for the agent
    #[arg(long, value_name = "TEXT", default_value = "withdrawn by the user")]
    pub(crate) reason: String,
}
