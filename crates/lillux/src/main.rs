//! The `lillux` binary: the library's functions for scripts.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
