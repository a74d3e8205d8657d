//! Running other programs: shown before they run, named when they fail.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::place;
use crate::say::say;

/// Cargo, in the workspace.
///
/// What cargo told this program about itself, build scripts would take for a change: ring
/// and all that is built on it would be compiled anew whenever somebody goes from
/// `cargo xtask` to cargo and back.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = program(cargo, arguments);
    for (name, _) in std::env::vars_os() {
        let is_own = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if is_own
            .iter()
            .any(|begin| name.to_string_lossy().starts_with(begin))
        {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Any program, in the workspace, with nothing on its standard input.
pub(crate) fn program<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(place::workspace())
        .stdin(Stdio::null());
    command
}

/// Shows the command, runs it, and fails unless it succeeds.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    say!("$ {}", line(command));
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", words(command));
    }
    Ok(())
}

/// Runs the command without showing it and gives its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| cannot_start(command))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` failed ({})\n{}",
            words(command),
            output.status,
            told.trim_end()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed something that is not UTF-8", words(command)))
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", command.get_program().display())
}

/// The command as one could type it, the variables set for it first.
fn line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy();
        Some(format!("{}={} ", name.to_string_lossy(), quoted(&value)))
    });
    variables.chain([words(command)]).collect()
}

/// The program, without its folder, and its arguments.
fn words(command: &Command) -> String {
    let name = std::path::Path::new(command.get_program());
    let name = name.file_name().unwrap_or(name.as_os_str());
    let arguments = command.get_args();
    let words = [name].into_iter().chain(arguments);
    let words: Vec<_> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
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
    fn a_command_is_shown_as_one_could_type_it() {
        let mut command = program("/usr/bin/env", ["echo", "two words", "it's", ""]);
        command.env("FLAGS", "-D warnings");
        assert_eq!(
            line(&command),
            r"FLAGS='-D warnings' env echo 'two words' 'it'\''s' ''"
        );
    }

    #[test]
    fn a_failure_names_the_command_its_status_and_its_words() {
        let error = output(&mut program("sh", ["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("exit status: 3") && text.ends_with("why"),
            "{text}"
        );
    }
}
