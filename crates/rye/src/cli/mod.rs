//! Entry point of the command line: parses arguments, runs a command, prints its outcome.

mod args;
mod batch;
mod commands;
mod context;
mod entry_line;
mod failure;
mod gate_render;
mod observer;
mod page;
mod printer;
mod progress;
mod secret_input;
mod signal_notice;
mod table;
mod terminal_asker;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anstream::ColorChoice;
use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rye_host::LogOptions;
use rye_host::settings::{self, Color, Options};

use args::{Cli, Command};
use commands::execute::StartedSupervisor;
use context::Context;
use failure::Failure;
use printer::{Outcome, Printer};

/// Parses the arguments, runs the command and prints its outcome.
pub(crate) fn main() -> ExitCode {
    // Before everything else: the launcher must be single-threaded and own its files in `/proc`,
    // which `protect_memory` prevents.
    if let Some(code) = rye_host::sandbox::run_launcher() {
        return code;
    }
    // Tools run as the same user and could otherwise read the keys in our environment.
    if let Err(error) = lillux::process::protect_memory() {
        let printer = Printer {
            json: false,
            quiet: false,
            color: early_color(&Options::default()),
        };
        return printer.finish(Err(Failure::failed("protect_memory", error)));
    }
    let arguments = arguments();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse_usage(&error, &arguments),
    };
    let options = Options {
        project: cli.global.project,
        color: cli.global.color,
    };
    let mut printer = Printer {
        json: cli.global.json,
        quiet: cli.global.quiet,
        color: early_color(&options),
    };
    let log = LogOptions {
        filter: cli.global.log,
        file: cli.global.log_file,
        format: cli.global.log_format,
    };
    let mut supervisor = None;
    let outcome = start_log(&cli.command, log)
        .and_then(|()| dispatch(cli.command, &options, &mut printer, &mut supervisor));
    let code = printer.finish(outcome);
    // After the output, so that the user does not wait for the clean-up of the tool's processes.
    if let Some(supervisor) = supervisor.and_then(Arc::into_inner) {
        supervisor.shut_down();
    }
    code
}

/// Starts the log. A chat on the terminal needs a file for it.
fn start_log(command: &Command, options: LogOptions) -> Result<(), Failure> {
    let is_on_stderr = rye_host::start_log(options)?;
    match command {
        Command::Chat(args) if is_on_stderr && !args.plain && io::stderr().is_terminal() => {
            let message = "the log would disturb the chat; write it to a file";
            Err(Failure::usage(message).hint("rye chat --log-file rye.log"))
        }
        _ => Ok(()),
    }
}

fn dispatch(
    command: Command,
    options: &Options,
    printer: &mut Printer,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    // These work without an installation, which may be what the user needs help with.
    match &command {
        Command::Completions(args) => return Ok(commands::completions::run(args)),
        Command::Help(args) => return commands::help::run(args),
        Command::Demo(args) => return commands::demo::run(args),
        _ => {}
    }
    let mut context = Context::open(options, printer)?;
    if !matches!(command, Command::Init(_)) {
        context.require_project()?;
    }
    match command {
        Command::Init(args) => commands::init::run(&args, &context),
        Command::Execute(args) => commands::execute::run(args, &mut context, printer, supervisor),
        Command::Graph(command) => commands::graph::run(command, &mut context, printer, supervisor),
        Command::Run(command) => commands::run::run(&command, &context),
        Command::Search(args) => commands::search::run(args, &context),
        Command::Load(args) => commands::load::run(&args, &context),
        Command::Sign(args) => commands::sign::run(args, &context),
        Command::Verify(args) => commands::verify::run(&args, &context),
        Command::Keys(command) => commands::keys::run(&command, &context),
        Command::System(command) => commands::system::run(&command),
        Command::Doctor => Ok(commands::doctor::run(&context)),
        Command::Vault(command) => commands::vault::run(command, &context),
        Command::Chat(args) => commands::chat::run(&args, &context),
        Command::Prompt(args) => commands::prompt::run(&args, &context),
        Command::Replay(args) => commands::replay::run(&args, &context),
        Command::Eval(args) => commands::eval::run(&args, &context),
        Command::Session(command) => commands::session::run(&command, &context),
        Command::Gate(command) => commands::gate::run(&command, &context),
        Command::Sandbox(command) => commands::sandbox::run(command, &context),
        Command::Models(command) => commands::models::run(&command, &context),
        Command::Mcp(command) => {
            commands::mcp::run(command, options, &mut context, printer, supervisor)
        }
        Command::Acp(args) => commands::acp::run(&args, options, &context),
        Command::Serve(args) => commands::serve::run(&args, options, &context),
        Command::Token(command) => commands::token::run(&command, &context),
        Command::Quota(command) => commands::quota::run(command, &context),
        Command::Schedule(command) => commands::schedule::run(command, &context),
        Command::Webhook(command) => commands::webhook::run(command, &context),
        Command::Hook(command) => commands::webhook::run_hook(command, &context),
        Command::Config(command) => commands::config::run(&command, &context),
        Command::Completions(args) => Ok(commands::completions::run(&args)),
        Command::Help(args) => commands::help::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
    }
}

/// The arguments of the process. A link named `rye_sign` or `rye_execute` runs that command.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let name = arguments
        .first()
        .and_then(|program| Path::new(program).file_name());
    let command = name.and_then(|name| name.to_str()?.strip_prefix("rye_"));
    if let Some(command @ ("sign" | "execute")) = command {
        // So that the help reads `rye sign`.
        arguments.splice(..1, ["rye".into(), command.into()]);
    }
    arguments
}

/// The colour setting for output before the settings are loaded. Ignores an invalid setting,
/// which loading the settings will report.
fn early_color(options: &Options) -> ColorChoice {
    let early = settings::early_color(options, &settings::variable);
    let color = early.ok().flatten().map(|setting| setting.value);
    color_choice(color.unwrap_or_default())
}

fn color_choice(color: Color) -> ColorChoice {
    match color {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    }
}

/// Prints help or version, or reports wrong usage: clap's text for people, plus a JSON document
/// with `--json`.
fn refuse_usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let is_option = |option: &str| {
        let options = arguments.iter().take_while(|word| *word != "--");
        options.into_iter().any(|word| word == option)
    };
    let printer = Printer {
        json: is_option("--json"),
        quiet: false,
        color: early_color(&Options::default()),
    };
    if is_vault_command(arguments)
        && let Some(message) = message_without_arguments(error)
    {
        let failure = Failure::usage(message).hint("printf %s \"$VALUE\" | rye vault set NAME");
        return printer.refuse(&failure, &failure::render(&failure));
    }
    let rendered = error.render().ansi().to_string();
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => printer.text(&rendered),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let failure = Failure::usage("missing command").hint("rye --help");
            printer.refuse(&failure, &rendered)
        }
        _ => {
            let hint = format!("{} --help", command_name(error));
            let failure = Failure::usage(first_paragraph(&text)).hint(&hint);
            let (before, _) = rendered.split_once("For more").unwrap_or((&rendered, ""));
            let help = page::HELP;
            let rendered = format!("{before}  {help}hint{help:#}: {hint}\n");
            printer.refuse(&failure, &rendered)
        }
    }
}

/// The command of an error, such as `rye vault set`, by its usage.
fn command_name(error: &clap::Error) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage.split_whitespace().skip(1);
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let name: Vec<_> = words.take_while(is_name).collect();
    match name.as_slice() {
        [] => "rye".to_owned(),
        name => name.join(" "),
    }
}

/// Whether the arguments are `rye vault COMMAND`, with any options before it.
fn is_vault_command(arguments: &[OsString]) -> bool {
    let commands = ["set", "get", "list", "rm"];
    let mut pairs = arguments.windows(2);
    pairs.any(|pair| pair[0] == "vault" && commands.iter().any(|command| pair[1] == *command))
}

/// A message for errors in which clap would quote a misplaced argument: it may be a secret, and
/// output ends up in logs.
fn message_without_arguments(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            Some("unexpected argument; a secret's value is never an argument".to_owned())
        }
        ErrorKind::ValueValidation => std::error::Error::source(error).map(ToString::to_string),
        _ => None,
    }
}

/// The text before the usage in clap's error message, on one line.
fn first_paragraph(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.is_empty());
    let message = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    message
        .strip_prefix("error: ")
        .unwrap_or(&message)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn argument_definitions_are_valid() {
        super::Cli::command().debug_assert();
    }
}
