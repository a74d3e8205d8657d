//! Runs other programs.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::output::print_line;
use crate::paths;

/// Cargo in the workspace.
///
/// Removes the variables that cargo set for this program: build scripts would see a change
/// and rebuild their crates whenever you switch between `cargo xtask` and `cargo`.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = program(cargo, arguments);
    for (name, _) in std::env::vars_os() {
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if prefixes
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// A program in the workspace with empty standard input.
pub(crate) fn program<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(paths::workspace())
        .stdin(Stdio::null());
    command
}

/// Prints a command and runs it; fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    print_line!("$ {}", command_line(command));
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", name_and_args(command));
    }
    Ok(())
}

/// Runs a command without printing it and returns its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| cannot_start(command))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` failed ({})\n{}",
            name_and_args(command),
            output.status,
            stderr.trim_end()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed invalid UTF-8", name_and_args(command)))
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", command.get_program().display())
}

/// The command with its variables, as you would type it.
fn command_line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy();
        Some(format!(
            "{}={} ",
            name.to_string_lossy(),
            shell_quote(&value)
        ))
    });
    variables.chain([name_and_args(command)]).collect()
}

/// Name and arguments of the command.
fn name_and_args(command: &Command) -> String {
    let name = std::path::Path::new(command.get_program());
    let name = name.file_name().unwrap_or(name.as_os_str());
    let arguments = command.get_args();
    let words = [name].into_iter().chain(arguments);
    let words: Vec<_> = words
        .map(|word| shell_quote(&word.to_string_lossy()))
        .collect();
    words.join(" ")
}

/// Quotes a word for a shell.
fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let mut command = program("/usr/bin/env", ["echo", "two words", "it's", ""]);
        command.env("FLAGS", "-D warnings");
        assert_eq!(
            command_line(&command),
            r"FLAGS='-D warnings' env echo 'two words' 'it'\''s' ''"
        );
    }

    #[test]
    fn failure_has_the_status_and_standard_error() {
        let error = capture(&mut program("sh", ["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("exit status: 3") && text.ends_with("why"),
            "{text}"
        );
    }
}
