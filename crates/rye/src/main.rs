//! The `rye` binary: runs signed tools, and nothing that was not verified.

mod cli;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
