//! The built-in commands.

mod files;
mod grep;
mod misc;
mod options;
mod printf;
mod test;
mod text;

use super::io::Io;
use super::meter::Halt;

/// Exit status of a command, or why the script cannot continue.
type CommandResult = Result<i32, Halt>;

const ALL: &str = "break cat cd continue cp echo exit export false grep head local ls mkdir mv \
                   printf pwd read return rm seq set shift sleep sort tail test touch true uniq \
                   unset wc";

/// Runs a command by name.
pub(super) async fn run(io: &mut Io<'_, '_>, args: &[String]) -> CommandResult {
    match io.name.as_str() {
        ":" | "true" => Ok(0),
        "false" => Ok(1),
        "[" | "test" => Ok(test::test(io, args)),
        "cat" => text::cat(io, args).await,
        "cd" => misc::cd(io, args),
        "cp" => files::cp(io, args).await,
        "echo" => misc::echo(io, args).await,
        "break" | "continue" => misc::leave_loop(io, args),
        "exit" | "return" => misc::exit(io, args),
        "export" | "local" => misc::export(io, args),
        "grep" => grep::grep(io, args).await,
        "head" => text::head(io, args).await,
        "ls" => files::ls(io, args).await,
        "mkdir" => files::mkdir(io, args).await,
        "mv" => files::mv(io, args).await,
        "printf" => printf::printf(io, args).await,
        "pwd" => misc::pwd(io).await,
        "read" => misc::read(io, args).await,
        "rm" => files::rm(io, args).await,
        "seq" => misc::seq(io, args).await,
        "set" => misc::set(io, args),
        "shift" => misc::shift(io, args),
        "sleep" => misc::sleep(io, args).await,
        "sort" => text::sort(io, args).await,
        "tail" => text::tail(io, args).await,
        "touch" => files::touch(io, args).await,
        "uniq" => text::uniq(io, args).await,
        "unset" => {
            io.shell
                .state
                .variables
                .retain(|name, _| !args.contains(name));
            Ok(0)
        }
        "wc" => text::wc(io, args).await,
        _ => {
            io.report_error(&format!("command not found; available commands: {ALL}"));
            Ok(127)
        }
    }
}
