//! `rye mcp`: the MCP server, and third-party MCP servers.

mod add;
mod call;
mod difference;
mod discover;
mod import;
pub(crate) mod install;
mod list;
mod login;
mod remove;
mod serve;

use rye_host::call::block_on_until_signal;
use rye_host::settings::Options;

use rye_mcp::client::{ClientError, Pool};

use super::execute::{StartedSupervisor, supervisor_or_start};
use crate::cli::args::McpCommand;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::Outcome;
use crate::cli::terminal_asker;

pub(crate) fn run(
    command: McpCommand,
    options: &Options,
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    match command {
        McpCommand::Serve(args) => serve::run(&args, options, context),
        McpCommand::Install(args) => install::run(&args, context),
        McpCommand::Add(args) => add::run(&args, context, supervisor),
        McpCommand::List => list::run(context),
        McpCommand::Discover(args) => discover::run(&args, context, supervisor),
        McpCommand::Call(args) => call::run(&args, context, supervisor),
        McpCommand::Login(args) => login::log_in(&args, context, supervisor),
        McpCommand::Logout(args) => login::log_out(&args, context),
        McpCommand::Remove(args) => remove::run(&args, context),
        McpCommand::Import(args) => import::run(&args, context),
    }
}

/// Runs `work` on a pool of servers and shuts the pool down. Servers may ask the user on the
/// terminal.
fn with_pool<T>(
    early: &mut StartedSupervisor,
    context: &Context,
    work: impl AsyncFnOnce(&Pool) -> Result<T, ClientError>,
) -> Result<Result<T, ClientError>, Failure> {
    let supervisor = supervisor_or_start(early)?;
    let pool = terminal_asker::pool(&supervisor, context.printer);
    block_on_until_signal(async {
        let outcome = work(&pool).await;
        pool.shutdown().await;
        outcome
    })
}
