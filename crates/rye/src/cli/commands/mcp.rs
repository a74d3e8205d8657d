//! `rye mcp`

pub(crate) mod install;
mod serve;

use crate::cli::args::McpCommand;
use crate::cli::context::Context;
use crate::cli::printer::Outcome;
use crate::settings::Options;

pub(crate) fn run(command: McpCommand, options: &Options, context: &Context) -> Outcome {
    match command {
        McpCommand::Serve(args) => serve::run(&args, options, context),
        McpCommand::Install(args) => install::run(&args, options, context),
    }
}
