//! `rye mcp`

mod add;
mod call;
mod discover;
mod import;
mod items;
mod list;
mod remove;

use super::execute::Keeper;
use crate::cli::args::McpCommand;
use crate::cli::context::Context;
use crate::cli::printer::Outcome;

pub(crate) fn run(command: McpCommand, context: &Context, keeper: &mut Keeper) -> Outcome {
    match command {
        McpCommand::Add(args) => add::run(&args, context, keeper),
        McpCommand::List => list::run(context),
        McpCommand::Discover(args) => discover::run(&args, context, keeper),
        McpCommand::Call(args) => call::run(&args, context, keeper),
        McpCommand::Remove(args) => remove::run(&args, context),
        McpCommand::Import(args) => import::run(&args, context),
    }
}
