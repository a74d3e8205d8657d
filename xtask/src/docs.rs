//! `cargo xtask docs`: rustdoc, and the references that binaries tell of themselves.

mod environment;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::place;
use crate::run::{cargo, output, program, show};
use crate::say::say;

/// A binary that tells its own reference.
struct Binary {
    name: &'static str,
    /// Where the reference is, from the workspace's folder.
    reference: &'static str,
    /// The guides, as links from there.
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

/// Where the JSON Schema of the protocol is.
const SCHEMA: &str = "docs/reference/protocol.schema.json";

/// Regenerates the references and builds rustdoc; `--check` only compares.
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

/// Builds the documentation of every crate; a warning is an error.
pub(crate) fn rustdoc() -> Result<()> {
    let mut doc = cargo([
        "doc",
        "--locked",
        "--workspace",
        "--no-deps",
        "--all-features",
    ]);
    show(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Fails if a generated reference is not what would be generated now.
pub(crate) fn check() -> Result<()> {
    for (name, wanted) in references()? {
        let there = fs::read_to_string(place::workspace().join(name)).unwrap_or_default();
        if there == wanted {
            continue;
        }
        let differs = there
            .lines()
            .zip(wanted.lines())
            .position(|(there, wanted)| there != wanted);
        let line = 1 + differs.unwrap_or_else(|| there.lines().count().min(wanted.lines().count()));
        bail!("{name} is stale from line {line} on; run: cargo xtask docs");
    }
    Ok(())
}

fn generate() -> Result<()> {
    for (name, text) in references()? {
        let path = place::workspace().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        say!("wrote {name}");
    }
    Ok(())
}

/// Every generated page: where it is, from the workspace's folder, and its text.
fn references() -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for binary in &BINARIES {
        all.push((binary.reference, reference(binary)?));
    }
    all.push((environment::PAGE, environment::page(&built("rye")?)?));
    all.push((SCHEMA, schema()?));
    Ok(all)
}

/// The JSON Schema of what the engine writes down, as its types say.
fn schema() -> Result<String> {
    output(&mut cargo([
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

/// Builds a binary and gives its path.
fn built(name: &str) -> Result<PathBuf> {
    let build = ["build", "--locked", "--package", name, "--bin", name];
    show(&mut cargo(build))?;
    place::built("debug", name)
}

/// The help of the real binary and of each of its commands, as Markdown.
fn reference(binary: &Binary) -> Result<String> {
    let name = binary.name;
    let program_path = built(name)?;
    let mut pages = Vec::new();
    walk(&mut vec![name.to_owned()], &mut pages, &|command| {
        let mut help = program(&program_path, &command[1..]);
        output(help.arg("--help").env("NO_COLOR", "1"))
    })?;
    Ok(markdown(binary, &pages))
}

/// One command's words, `["lillux", "cas", "put"]`, and its help.
type Page = (Vec<String>, String);

/// Collects the help of `command` and, depth first, of every command below it.
fn walk(
    command: &mut Vec<String>,
    pages: &mut Vec<Page>,
    help: &dyn Fn(&[String]) -> Result<String>,
) -> Result<()> {
    let text = help(command)?;
    let below = commands_in(&text);
    pages.push((command.clone(), text));
    for name in below {
        command.push(name);
        walk(command, pages, help)?;
        command.pop();
    }
    Ok(())
}

/// The names listed under `Commands:` in a help text.
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
        "<!-- Generated from the binary's own help by `cargo xtask docs`. Edit the help, not this. -->\n\n\
         # `{name}`: every command and option\n\n\
         What each is for, with examples: {guides}.\n",
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
        in two-level folders
  time  Tell the time
  help  Print this message

Options:
  -h, --help  Print help
";

    #[test]
    fn commands_are_read_from_a_help_text_and_options_are_not() {
        assert_eq!(commands_in(TOP), ["cas", "time"]);
        assert_eq!(
            commands_in("Usage: x\n\nOptions:\n  -h  Print help\n"),
            [""; 0]
        );
    }

    #[test]
    fn the_walk_goes_depth_first_to_every_command() {
        let mut pages = Vec::new();
        walk(&mut vec!["lillux".into()], &mut pages, &|command| {
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
    fn a_page_becomes_a_heading_and_a_block_without_trailing_spaces() {
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
