//! `cargo xtask docs`: rustdoc, and references generated from the binaries.

mod clients;
mod environment;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::paths;
use crate::process::{capture, cargo, program, run};

/// A binary with a generated reference.
struct Binary {
    name: &'static str,
    /// Path of the reference in the workspace.
    reference: &'static str,
    /// Links to the guides.
    guides: &'static str,
}

const BINARIES: [Binary; 2] = [
    Binary {
        name: "lillux",
        reference: "docs/reference/lillux.md",
        guides: "[the guide](../lillux.md)",
    },
    Binary {
        name: "rye",
        reference: "docs/reference/rye.md",
        guides: "[items](../items.md), [executing](../executing.md), [signing](../signing.md), [search](../search.md), \
                 [configuration](../configuration.md), [the vault](../vault.md), [models](../models.md)",
    },
];

/// Path of the protocol's JSON Schema in the workspace.
const SCHEMA: &str = "docs/reference/protocol.schema.json";

/// Path of the description of the HTTP API in the workspace.
const OPENAPI: &str = "docs/reference/openapi.json";

/// Regenerates the references and builds rustdoc; `--check` only compares the references.
pub(crate) fn main(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            generate()?;
            rustdoc()
        }
        [flag] if flag == "--check" => check(),
        _ => bail!("usage: cargo xtask docs [--check]"),
    }
}

/// Builds the documentation of every crate; warnings are errors.
pub(crate) fn rustdoc() -> Result<()> {
    let mut doc = cargo([
        "doc",
        "--locked",
        "--workspace",
        "--no-deps",
        "--all-features",
    ]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Fails if a generated reference is out of date.
pub(crate) fn check() -> Result<()> {
    for (name, expected) in references()? {
        let current = fs::read_to_string(paths::workspace().join(name)).unwrap_or_default();
        if current == expected {
            continue;
        }
        let differs = current
            .lines()
            .zip(expected.lines())
            .position(|(current, expected)| current != expected);
        let line =
            1 + differs.unwrap_or_else(|| current.lines().count().min(expected.lines().count()));
        bail!("{name} is out of date from line {line}\n  hint: cargo xtask docs");
    }
    Ok(())
}

fn generate() -> Result<()> {
    for (name, text) in references()? {
        let path = paths::workspace().join(name);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create the directory {}", directory.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        print_line!("wrote {name}");
    }
    Ok(())
}

/// Path and text of every generated page.
fn references() -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for binary in &BINARIES {
        all.push((binary.reference, reference(binary)?));
    }
    all.push((environment::PAGE, environment::page(&build_binary("rye")?)?));
    all.push((clients::PAGE, clients::page()?));
    all.push((SCHEMA, schema()?));
    all.push((OPENAPI, openapi()?));
    Ok(all)
}

/// The JSON Schema of the protocol types.
fn schema() -> Result<String> {
    capture(&mut cargo([
        "run",
        "--locked",
        "--package",
        "rye-protocol",
        "--features",
        "schema",
        "--example",
        "schema",
    ]))
}

/// The OpenAPI document of the HTTP server.
fn openapi() -> Result<String> {
    capture(&mut cargo([
        "run",
        "--locked",
        "--package",
        "rye-server",
        "--example",
        "openapi",
    ]))
}

/// Builds a binary and returns its path. With `--workspace`, dependencies have the same features
/// as in the tests and are not compiled again.
pub(crate) fn build_binary(name: &str) -> Result<PathBuf> {
    let build = ["build", "--locked", "--workspace", "--bin", name];
    run(&mut cargo(build))?;
    paths::built_program("debug", name)
}

/// The help of a binary and all its commands as Markdown.
fn reference(binary: &Binary) -> Result<String> {
    let name = binary.name;
    let program_path = build_binary(name)?;
    let mut pages = Vec::new();
    collect_help(&mut vec![name.to_owned()], &mut pages, &|command| {
        let mut help = program(&program_path, &command[1..]);
        capture(help.arg("--help").env("NO_COLOR", "1"))
    })?;
    Ok(markdown(binary, &pages))
}

/// The words of a command, such as `["lillux", "cas", "put"]`, and its help.
type Page = (Vec<String>, String);

/// Collects the help of a command and, depth first, of its subcommands.
fn collect_help(
    command: &mut Vec<String>,
    pages: &mut Vec<Page>,
    help: &dyn Fn(&[String]) -> Result<String>,
) -> Result<()> {
    let text = help(command)?;
    let subcommands = commands_in(&text);
    pages.push((command.clone(), text));
    for name in subcommands {
        command.push(name);
        collect_help(command, pages, help)?;
        command.pop();
    }
    Ok(())
}

/// The commands that clap lists under `Commands:`.
fn commands_in(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with(' '))
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(ToOwned::to_owned)
        .collect()
}

fn markdown(binary: &Binary, pages: &[Page]) -> String {
    let Binary { name, guides, .. } = binary;
    let mut text = format!(
        "<!-- Generated from the binary's own help by `cargo xtask docs`. Edit the help instead. -->\n\n\
         # `{name}`: commands and options\n\n\
         Guides with examples: {guides}.\n",
    );
    for (command, help) in pages {
        let help: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
        let entry = format!(
            "\n## `{}`\n\n```text\n{}\n```\n",
            command.join(" "),
            help.join("\n")
        );
        text.push_str(&entry);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str = "\
A kernel.

Usage: lillux <COMMAND>

Commands:
  cas   Keep bytes by their hash
        in two-level directories
  time  Tell the time
  help  Print this message

Options:
  -h, --help  Print help
";

    #[test]
    fn commands_are_parsed_from_help() {
        assert_eq!(commands_in(TOP), ["cas", "time"]);
        assert_eq!(
            commands_in("Usage: x\n\nOptions:\n  -h  Print help\n"),
            [""; 0]
        );
    }

    #[test]
    fn help_is_collected_depth_first() {
        let mut pages = Vec::new();
        collect_help(&mut vec!["lillux".into()], &mut pages, &|command| {
            Ok(match command.join(" ").as_str() {
                "lillux" => TOP.into(),
                "lillux cas" => "Commands:\n  put  Keep\n".into(),
                _ => "Options:\n".into(),
            })
        })
        .unwrap();
        let commands: Vec<_> = pages.iter().map(|(command, _)| command.join(" ")).collect();
        assert_eq!(
            commands,
            ["lillux", "lillux cas", "lillux cas put", "lillux time"]
        );
    }

    #[test]
    fn page_is_a_heading_and_a_block_without_trailing_spaces() {
        let text = markdown(
            &BINARIES[0],
            &[(vec!["lillux".into(), "time".into()], "Tell  \n\n".into())],
        );
        assert!(
            text.ends_with("\n## `lillux time`\n\n```text\nTell\n```\n"),
            "{text}"
        );
    }
}
