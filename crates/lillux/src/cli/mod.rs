//! The command line: parses arguments, runs a command, prints one JSON object.

mod args;
mod commands;
mod input;
mod report;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use report::{Exit, Failure, Report};

/// Parses the arguments, runs the command, prints its JSON object and returns the exit code.
pub(crate) fn main() -> ExitCode {
    if let Err(error) = lillux::process::protect_memory() {
        return report::print(Err(Failure::new(Exit::Failed, "protect_memory", error)));
    }
    match Cli::try_parse() {
        Ok(cli) => report::print(dispatch(cli.command)),
        Err(error) => print_usage_error(&error),
    }
}

fn dispatch(command: Command) -> Result<Report, Failure> {
    match command {
        Command::Exec(args) => commands::exec::run(args),
        Command::Spawn(args) => commands::processes::spawn(args),
        Command::Status(args) => commands::processes::status(args.pid),
        Command::Kill(args) => commands::processes::kill(args),
        Command::Watch(args) => commands::processes::watch(args),
        Command::Cas(command) => commands::cas::run(command),
        Command::Keypair(args) => commands::keys::keypair(&args),
        Command::Sign(args) => commands::keys::sign(&args),
        Command::Verify(args) => commands::keys::verify(&args),
        Command::Envelope(command) => commands::envelope::run(&command),
        Command::Time => Ok(Report::new(lillux::time::now())),
    }
}

/// Prints help and version on standard output; other errors as text on standard error and as JSON
/// on standard output.
fn print_usage_error(error: &clap::Error) -> ExitCode {
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
    let failure = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::usage("no command was given")
        }
        _ => Failure::usage(first_paragraph(&text)),
    };
    report::print_failure(&failure, &text)
}

/// The message of a clap error without the usage, in one line.
fn first_paragraph(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.is_empty());
    let message = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .to_owned()
}
