//! The commands that there are.

mod files;
mod grep;
mod options;
mod printf;
mod test;
mod text;
mod words;

use super::io::Io;
use super::meter::Halt;

/// How a command ended: with a number, or not by itself.
type Ran = Result<i32, Halt>;

const ALL: &str = "cat cd cp echo exit export false grep head ls mkdir mv printf pwd rm seq sleep \
                   sort tail test touch true uniq wc";

/// Runs a command by its name.
pub(super) async fn run(io: &mut Io<'_, '_>, args: &[String]) -> Ran {
    match io.name.as_str() {
        ":" | "true" => Ok(0),
        "false" => Ok(1),
        "[" | "test" => Ok(test::test(io, args)),
        "cat" => text::cat(io, args).await,
        "cd" => words::cd(io, args),
        "cp" => files::copy(io, args).await,
        "echo" => words::echo(io, args).await,
        "exit" => words::exit(args),
        "export" => words::export(io, args),
        "grep" => grep::grep(io, args).await,
        "head" => text::head(io, args).await,
        "ls" => files::list(io, args).await,
        "mkdir" => files::make(io, args).await,
        "mv" => files::rename(io, args).await,
        "printf" => printf::printf(io, args).await,
        "pwd" => words::pwd(io).await,
        "rm" => files::remove(io, args).await,
        "seq" => words::seq(io, args).await,
        "sleep" => words::sleep(io, args).await,
        "sort" => text::sort(io, args).await,
        "tail" => text::tail(io, args).await,
        "touch" => files::touch(io, args).await,
        "uniq" => text::uniq(io, args).await,
        "wc" => text::count(io, args).await,
        _ => {
            io.complain(&format!("command not found; this shell has: {ALL}"));
            Ok(127)
        }
    }
}
