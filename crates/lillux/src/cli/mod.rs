//! From arguments to one JSON object on standard output and an exit code.

mod args;
mod commands;
mod input;
mod report;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use report::{Failure, Report};

/// Reads the arguments, runs the command, prints its one JSON object.
pub(crate) fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => report::print(dispatch(cli.command)),
        Err(error) => refuse_usage(&error),
    }
}

fn dispatch(command: Command) -> Result<Report, Failure> {
    match command {
        Command::Time => commands::time::run(),

        Command::Cas(command) => commands::cas::run(command),

        Command::Keypair(args) => commands::keypair::run(&args),
        Command::Sign(args) => commands::sign::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Envelope(command) => commands::envelope::run(&command),
    }
}

/// Help and version are what was asked for; the rest is wrong usage, told to
/// people on standard error and to scripts as JSON.
fn refuse_usage(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let text = error.render().to_string();
    let message = text.lines().next().unwrap_or_default();
    let failure = Failure::usage(message.strip_prefix("error: ").unwrap_or(message));
    report::print_usage(&failure, &text)
}
