//! The `rye` command-line program.

mod cli;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
