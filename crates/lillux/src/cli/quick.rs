//! The short way to `exec`.
//!
//! Scripts call `exec` in loops, and for a short command most of the time goes
//! into getting there. So its plainest arguments are read without building the
//! parser, which would take as long as the fork of its keeper, and make that
//! larger. Whatever is not plain goes the long way, so what can be typed is
//! decided in one place all the same; a test holds the two together.

use std::ffi::OsString;
use std::process::ExitCode;

use lillux::process::{DEFAULT_GRACE, DEFAULT_OUTPUT_LIMIT};

use super::args::{ExecArgs, Inherit, ProgramArgs, seconds, variable};
use super::{commands, report};

/// Runs `exec` if that is what was typed, and plainly. Prints, too, and only
/// then waits for the keeper to end.
pub(super) fn exec() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "exec" {
        return None;
    }
    let args = read(words)?;
    let supervisor = match commands::exec::supervisor() {
        Ok(supervisor) => supervisor,
        Err(failure) => return Some(report::print(Err(failure))),
    };
    let code = report::print(commands::exec::run(args, &supervisor));
    supervisor.shut_down();
    Some(code)
}

/// The arguments, if each is a known option with its value as the next word,
/// given once unless it may be repeated.
fn read(mut words: impl Iterator<Item = OsString>) -> Option<ExecArgs> {
    let (mut cmd, mut args, mut cwd, mut env) = (None, Vec::new(), None, Vec::new());
    let (mut stdin, mut timeout) = (None, None);
    while let Some(option) = words.next() {
        let value = words.next()?;
        match option.to_str()? {
            "--arg" => args.push(value),
            "--env" => env.push(variable(value.to_str()?).ok()?),
            "--cmd" => once(&mut cmd, plain(value)?)?,
            "--cwd" => once(&mut cwd, plain(value)?.into())?,
            "--stdin" => once(&mut stdin, value.into_string().ok()?)?,
            "--timeout" => once(&mut timeout, seconds(value.to_str()?).ok()?)?,
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

fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// A value that is there and cannot be meant as an option.
fn plain(value: OsString) -> Option<OsString> {
    let first = *value.as_encoded_bytes().first()?;
    (first != b'-').then_some(value)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;

    use super::super::args::{Cli, Command};
    use super::*;

    fn long_way(words: &[String]) -> Option<ExecArgs> {
        let all = ["lillux", "exec"].into_iter().map(OsString::from);
        match Cli::try_parse_from(all.chain(words.iter().map(OsString::from))) {
            Ok(Cli {
                command: Command::Exec(args),
            }) => Some(args),
            _ => None,
        }
    }

    fn short_way(words: &[String]) -> Option<ExecArgs> {
        read(words.iter().map(OsString::from))
    }

    #[test]
    fn the_plain_arguments_go_the_short_way() {
        let typed = "--cmd sh --arg -c --arg true --cwd /tmp --env A=b=c --stdin - --timeout 1.5";
        let words: Vec<_> = typed.split(' ').map(str::to_owned).collect();
        assert!(short_way(&words).is_some());
        assert_eq!(short_way(&words), long_way(&words));
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
        fn what_goes_the_short_way_means_the_same_as_the_long_way(
            pairs in prop::collection::vec(
                (prop::sample::select(&OPTIONS), prop::sample::select(&VALUES)),
                0..6,
            )
        ) {
            let mut words = vec!["--cmd".to_owned(), "true".to_owned()];
            words.extend(pairs.into_iter().flat_map(|(option, value)| [option.into(), value.into()]));
            if let Some(args) = short_way(&words) {
                prop_assert_eq!(Some(args), long_way(&words));
            }
        }
    }
}
