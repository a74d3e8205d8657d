//! Development tasks: `cargo xtask COMMAND`.
//!
//! Each command installs what it needs, so that a fresh machine only needs Rust, a C compiler,
//! Python and network access to the package registries.

mod bench;
mod conformance;
mod console;
mod demo_svg;
mod docs;
mod fuzz;
mod output;
mod paths;
mod process;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

use anyhow::{Result, bail};

use output::print_line;

const HELP: &str = "\
Development tasks

Usage: cargo xtask COMMAND

Commands:
  test  [--only STEP[,STEP]…] [--list]  Run all checks that a change must pass
  bench [FILTER]                        Run the benchmarks on a release build
  docs  [--check]                       Build rustdoc and the generated references
  fuzz  [TARGET] [--seconds N]          Run all fuzz targets, or one [default: 30 s each]
  console [--vendor | --screenshots]    Check the web console, rebuild its vendored file, or
                                        take the screenshots of its documentation
  demo-svg                              Record `rye demo` as docs/demo.svg
  chat-svg                              Record a task in `rye chat` as docs/chat.svg

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
            print_line!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else {
        print_line!("{HELP}");
        return Ok(());
    };
    if rest
        .iter()
        .any(|argument| argument == "-h" || argument == "--help")
    {
        print_line!("{HELP}");
        return Ok(());
    }
    match command.as_str() {
        "test" => test::main(rest),
        "bench" => bench::main(rest),
        "docs" => docs::main(rest),
        "fuzz" => fuzz::main(rest),
        "console" => console::main(rest),
        "demo-svg" => demo_svg::main(),
        "chat-svg" => demo_svg::chat(),
        "help" | "-h" | "--help" => {
            print_line!("{HELP}");
            Ok(())
        }
        other => bail!("unknown command `{other}`; `cargo xtask` lists the commands"),
    }
}
