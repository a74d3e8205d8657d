//! The `lillux` binary: the library, for scripts.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
