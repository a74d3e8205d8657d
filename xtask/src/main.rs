//! The project's own chores: `cargo xtask COMMAND`.
//!
//! Each command does its own set-up, so that a fresh machine needs nothing but
//! Rust, a C compiler, Python and network access to the package registries.

mod bench;
mod conformance;
mod docs;
mod fuzz;
mod order;
mod place;
mod run;
mod say;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

use say::say;

const HELP: &str = "\
The project's own chores.

Usage: cargo xtask COMMAND

Commands:
  test  [--only STEP[,STEP]…] [--list]  everything that must hold before a change goes in
  bench [FILTER]                        speed against a floor, in one table; release build
  docs  [--check]                       rustdoc, and the references generated from the binaries
  fuzz  [TARGET] [--seconds N]          every fuzz target, or one, for a bounded time (30 s)
  order                                 which functions the linker keeps together, watched anew

Examples:
  cargo xtask test
  cargo xtask test --only clippy
  cargo xtask bench processes
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else {
        say!("{HELP}");
        return Ok(());
    };
    if rest
        .iter()
        .any(|argument| argument == "-h" || argument == "--help")
    {
        say!("{HELP}");
        return Ok(());
    }
    match command.as_str() {
        "test" => test::main(rest),
        "bench" => bench::main(rest),
        "docs" => docs::main(rest),
        "fuzz" => fuzz::main(rest),
        "order" => order::main(),
        "help" | "-h" | "--help" => {
            say!("{HELP}");
            Ok(())
        }
        other => bail!("no command `{other}`; `cargo xtask` lists them"),
    }
}
