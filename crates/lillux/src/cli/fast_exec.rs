//! A fast path for `lillux exec` without clap.
//!
//! Scripts call `exec` in loops, and for a short command the startup dominates. So simple
//! arguments are parsed without building the clap parser, which takes as long as forking the
//! reaper and makes the fork larger. All other arguments are parsed by clap. A test checks that
//! both parsers agree.

use std::ffi::OsString;
use std::process::ExitCode;

use lillux::process::{DEFAULT_GRACE, DEFAULT_OUTPUT_LIMIT};

use super::args::{ExecArgs, Inherit, ProgramArgs, seconds, variable};
use super::{commands, report};

/// Runs `exec` if the command line is simple enough. Prints the result before it waits for the
/// reaper to end.
pub(super) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "exec" {
        return None;
    }
    let args = parse(words)?;
    let supervisor = match commands::exec::supervisor() {
        Ok(supervisor) => supervisor,
        Err(failure) => return Some(report::print(Err(failure))),
    };
    let code = report::print(commands::exec::run(args, &supervisor));
    supervisor.shut_down();
    Some(code)
}

/// Parses the arguments if each is a known option followed by its value as a separate word, and
/// only repeatable options are repeated.
fn parse(mut words: impl Iterator<Item = OsString>) -> Option<ExecArgs> {
    let (mut cmd, mut args, mut cwd, mut env) = (None, Vec::new(), None, Vec::new());
    let (mut stdin, mut timeout) = (None, None);
    while let Some(option) = words.next() {
        let value = words.next()?;
        match option.to_str()? {
            "--arg" => args.push(value),
            "--env" => env.push(variable(value.to_str()?).ok()?),
            "--cmd" => set_once(&mut cmd, non_option(value)?)?,
            "--cwd" => set_once(&mut cwd, non_option(value)?.into())?,
            "--stdin" => set_once(&mut stdin, value.into_string().ok()?)?,
            "--timeout" => set_once(&mut timeout, seconds(value.to_str()?).ok()?)?,
            _ => return None,
        }
    }
    Some(ExecArgs {
        program: ProgramArgs {
            cmd: cmd?,
            args,
            cwd,
            env,
            inherit: Inherit::All,
        },
        stdin,
        stdin_pipe: false,
        timeout,
        grace: DEFAULT_GRACE,
        max_output: DEFAULT_OUTPUT_LIMIT,
        spill: None,
    })
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// A value that is not empty and does not look like an option.
fn non_option(value: OsString) -> Option<OsString> {
    let first = *value.as_encoded_bytes().first()?;
    (first != b'-').then_some(value)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;

    use super::super::args::{Cli, Command};
    use super::*;

    fn with_clap(words: &[String]) -> Option<ExecArgs> {
        let all = ["lillux", "exec"].into_iter().map(OsString::from);
        match Cli::try_parse_from(all.chain(words.iter().map(OsString::from))) {
            Ok(Cli {
                command: Command::Exec(args),
            }) => Some(args),
            _ => None,
        }
    }

    fn fast_path(words: &[String]) -> Option<ExecArgs> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn simple_arguments_take_the_fast_path() {
        let typed = "--cmd sh --arg -c --arg true --cwd /tmp --env A=b=c --stdin - --timeout 1.5";
        let words: Vec<_> = typed.split(' ').map(str::to_owned).collect();
        assert!(fast_path(&words).is_some());
        assert_eq!(fast_path(&words), with_clap(&words));
    }

    const OPTIONS: [&str; 12] = [
        "--cmd",
        "--arg",
        "--arg",
        "--cwd",
        "--env",
        "--stdin",
        "--timeout",
        "--stdin-pipe",
        "--grace",
        "--inherit",
        "--help",
        "--cmd=x",
    ];
    const VALUES: [&str; 14] = [
        "sh", "A=b", "1", "1e3", "", "-", "-c", "--", "--cmd", "=", "-1", "0", "nan", "minimal",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn fast_path_agrees_with_clap(
            pairs in prop::collection::vec(
                (prop::sample::select(&OPTIONS), prop::sample::select(&VALUES)),
                0..6,
            )
        ) {
            let mut words = vec!["--cmd".to_owned(), "true".to_owned()];
            words.extend(pairs.into_iter().flat_map(|(option, value)| [option.into(), value.into()]));
            if let Some(args) = fast_path(&words) {
                prop_assert_eq!(Some(args), with_clap(&words));
            }
        }
    }
}
