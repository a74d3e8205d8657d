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

use std::sync::Arc;

use rye_host::call::block_on_until_signal;
use rye_host::settings::Options;

use rye_executor::OutputListener;
use rye_mcp::client::{ClientError, DEFAULT_INSTALL_TIMEOUT, Pool, RemoteTool, ServerSpec};

use super::execute::{StartedSupervisor, supervisor_or_start};
use crate::cli::args::McpCommand;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::one_line;
use crate::cli::printer::{Outcome, Printer};
use crate::cli::progress::Spinner;
use crate::cli::terminal_asker;

pub(crate) fn run(
    command: McpCommand,
    options: &Options,
    context: &mut Context,
    printer: &mut Printer,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    match command {
        McpCommand::Serve(args) => serve::run(&args, options, context),
        McpCommand::Install(args) => install::run(&args, context),
        McpCommand::Add(args) => add::run(&args, context, supervisor),
        McpCommand::List => list::run(context),
        McpCommand::Discover(args) => discover::run(&args, context, supervisor),
        McpCommand::Call(args) => call::run(&args, context, printer, supervisor),
        McpCommand::Login(args) => login::log_in(&args, context, supervisor),
        McpCommand::Logout(args) => login::log_out(&args, context),
        McpCommand::Remove(args) => remove::run(&args, context),
        McpCommand::Import(args) => import::run(&args, context),
    }
}

/// Lists the tools of a server whose first start may download and install it.
fn first_tools(
    early: &mut StartedSupervisor,
    context: &Context,
    mut server: ServerSpec,
) -> Result<Result<Arc<[RemoteTool]>, ClientError>, Failure> {
    server
        .config
        .start_timeout
        .get_or_insert(DEFAULT_INSTALL_TIMEOUT);
    with_pool(early, context, async |pool| {
        let label = "waiting for the server; a first start may take a minute";
        let spinner = Spinner::announced(context.printer, label);
        let shown = spinner.text();
        pool.set_start_listener(OutputListener::new(move |_, bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Some(line) = text.lines().rfind(|line| !line.trim().is_empty()) {
                shown.show(one_line(line));
            }
        }));
        pool.tools(&server).await
    })
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
