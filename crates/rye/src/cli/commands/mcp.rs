//! `rye mcp`: the MCP server, and third-party MCP servers.

mod add;
mod call;
mod difference;
mod discover;
mod import;
pub(crate) mod install;
mod items;
mod list;
mod login;
mod remove;
mod serve;

use rye_host::settings::Options;

use super::execute::StartedSupervisor;
use crate::cli::args::McpCommand;
use crate::cli::context::Context;
use crate::cli::printer::Outcome;

pub(crate) fn run(
    command: McpCommand,
    options: &Options,
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    match command {
        McpCommand::Serve(args) => serve::run(&args, options, context),
        McpCommand::Install(args) => install::run(&args, options, context),
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
