//! From arguments to output and an exit code.

mod args;
mod batch;
mod commands;
mod context;
mod engine;
mod entry_line;
mod errors;
mod failure;
mod follower;
mod gate_words;
mod gateway;
mod going_on;
mod last_words;
mod models;
mod page;
mod printer;
mod progress;
mod secret_input;
mod table;
mod targets;
mod terminal_asker;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anstream::ColorChoice;
use clap::Parser as _;
use clap::error::ErrorKind;

use crate::settings::{self, Color, Options};
use args::{Cli, Command, Later};
use commands::execute::Keeper;
use context::Context;
use failure::Failure;
use printer::{Outcome, Printer};

/// Reads the arguments, runs the command, prints how it ended.
pub(crate) fn main() -> ExitCode {
    // Tools run as the same user and could read the keys in our environment.
    if let Err(error) = lillux::process::protect_memory() {
        let printer = Printer {
            json: false,
            quiet: false,
            color: early_color(&Options::default()),
        };
        return printer.finish(Err(Failure::failed("protect_memory", error)));
    }
    let arguments = arguments();
    let mut keeper = commands::execute::keeper(&arguments);
    let cli = match commands::execute::plain(&arguments) {
        Some(cli) => cli,
        None => match Cli::try_parse_from(&arguments) {
            Ok(cli) => cli,
            Err(error) => return refuse_usage(&error, &arguments),
        },
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
    let outcome = dispatch(cli.command, &options, &mut printer, &mut keeper);
    let code = printer.finish(outcome);
    // All is said: time to see that nothing of the tool is left.
    if let Some(supervisor) = keeper.and_then(Arc::into_inner) {
        supervisor.shut_down();
    }
    code
}

fn dispatch(
    command: Command,
    options: &Options,
    printer: &mut Printer,
    keeper: &mut Keeper,
) -> Outcome {
    // These need nothing of the installation, which may be what a person needs help with.
    match &command {
        Command::Completions(Later(args)) => return Ok(commands::completions::run(args)),
        Command::Help(Later(args)) => return commands::help::run(args),
        Command::Demo(Later(args)) => return commands::demo::run(args),
        _ => {}
    }
    let mut context = Context::open(options, printer)?;
    if !matches!(command, Command::Init(_)) {
        context.need_project()?;
    }
    match command {
        Command::Init(Later(args)) => commands::init::run(&args, &context),
        Command::Execute(Later(args)) => {
            commands::execute::run(args, &mut context, printer, keeper)
        }
        Command::Graph(Later(command)) => {
            commands::graph::run(command, &mut context, printer, keeper)
        }
        Command::Run(Later(command)) => commands::run::run(&command, &context),
        Command::Search(Later(args)) => commands::search::run(&args, &context),
        Command::Load(Later(args)) => commands::load::run(&args, &context),
        Command::Sign(Later(args)) => commands::sign::run(&args, &context),
        Command::Verify(Later(args)) => commands::verify::run(&args, &context),
        Command::Keys(Later(command)) => commands::keys::run(&command, &context),
        Command::System(Later(command)) => commands::system::run(&command),
        Command::Doctor => Ok(commands::doctor::run(&context)),
        Command::Vault(Later(command)) => commands::vault::run(command, &context),
        Command::Chat(Later(args)) => commands::chat::run(&args, &context),
        Command::Prompt(Later(args)) => commands::prompt::run(&args, &context),
        Command::Replay(Later(args)) => commands::replay::run(&args, &context),
        Command::Session(Later(command)) => commands::session::run(&command, &context),
        Command::Gate(Later(command)) => commands::gate::run(&command, &context),
        Command::Models(Later(command)) => commands::models::run(&command, &context),
        Command::Mcp(Later(command)) => commands::mcp::run(command, options, &context, keeper),
        Command::Config(Later(command)) => commands::config::run(&command, &context),
        Command::Completions(Later(args)) => Ok(commands::completions::run(&args)),
        Command::Help(Later(args)) => commands::help::run(&args),
        Command::Demo(Later(args)) => commands::demo::run(&args),
    }
}

/// What was typed. A link named `rye_sign` is the command `sign`, and so on.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let name = arguments
        .first()
        .and_then(|program| Path::new(program).file_name());
    let command = name.and_then(|name| name.to_str()?.strip_prefix("rye_"));
    if let Some(command @ ("sign" | "execute")) = command {
        // So that its help reads `rye sign`.
        arguments.splice(..1, ["rye".into(), command.into()]);
    }
    arguments
}

/// The colour for what is said before the settings are known. What is wrong with
/// it is told with them.
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

/// Help and version are what was asked for; the rest is wrong usage, told to people
/// in clap's words and with `--json` to scripts as well.
fn refuse_usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let typed = |option: &str| {
        let options = arguments.iter().take_while(|word| *word != "--");
        options.into_iter().any(|word| word == option)
    };
    let printer = Printer {
        json: typed("--json"),
        quiet: false,
        color: early_color(&Options::default()),
    };
    if is_about_secrets(arguments)
        && let Some(message) = without_what_was_typed(error)
    {
        let failure = Failure::usage(message).hint("printf %s \"$VALUE\" | rye vault set NAME");
        return printer.refuse(&failure, &failure.words());
    }
    let words = error.render().ansi().to_string();
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => printer.text(&words),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let failure = Failure::usage("no command was given").hint("rye --help");
            printer.refuse(&failure, &words)
        }
        _ => printer.refuse(&Failure::usage(first_paragraph(&text)), &words),
    }
}

/// Whether `rye vault COMMAND` was typed, with whatever options before it.
fn is_about_secrets(arguments: &[OsString]) -> bool {
    let commands = ["set", "get", "list", "rm"];
    let mut pairs = arguments.windows(2);
    pairs.any(|pair| pair[0] == "vault" && commands.iter().any(|command| pair[1] == *command))
}

/// What is wrong, where clap would quote an argument that has no business there. It
/// may be a secret, and what is printed ends up in logs.
fn without_what_was_typed(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            Some("that is too much; a secret's value is never an argument".to_owned())
        }
        ErrorKind::ValueValidation => std::error::Error::source(error).map(ToString::to_string),
        _ => None,
    }
}

/// What clap has to say before it shows the usage, in one line.
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
    fn the_arguments_are_sound() {
        super::Cli::command().debug_assert();
    }
}
