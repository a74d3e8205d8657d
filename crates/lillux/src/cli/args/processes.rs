//! What the process commands take.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// A program and its surroundings.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct ProgramArgs {
    /// The program: a path, or a name to be found on PATH.
    #[arg(long, value_name = "C")]
    pub(crate) cmd: OsString,
    /// An argument, passed on as it is; repeat it for more.
    #[arg(long = "arg", value_name = "A", allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
    /// The folder to run in [default: this one].
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable; repeat it for more.
    #[arg(long = "env", value_name = "K=V", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Which variables of the caller the program sees beside those set by --env.
    #[arg(long, value_enum, default_value_t = Inherit::All)]
    pub(crate) inherit: Inherit,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Inherit {
    /// All of them.
    All,
    /// PATH, HOME, LANG, LC_*, TZ, TMPDIR, TERM, USER, SHELL.
    Minimal,
    /// None.
    None,
}

#[derive(Debug, PartialEq, Args)]
#[command(after_help = "Examples:\n  \
        lillux exec --cmd echo --arg hello\n  \
        lillux exec --cmd sh --arg -c --arg 'setsid sleep 300 & sleep 300' --timeout 1\n  \
        tar c . | lillux exec --cmd sha256sum --stdin-pipe")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// What the program reads on standard input.
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) stdin: Option<String>,
    /// Pass this command's own standard input on.
    #[arg(long, conflicts_with = "stdin")]
    pub(crate) stdin_pipe: bool,
    /// End everything after this many seconds.
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Seconds between SIGTERM and SIGKILL for what is to be ended.
    #[arg(long, value_name = "S", value_parser = seconds_or_zero, allow_negative_numbers = true, default_value = "0.5")]
    pub(crate) grace: Duration,
    /// How many bytes of each output stream to print.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = lillux::process::DEFAULT_OUTPUT_LIMIT)]
    pub(crate) max_output: usize,
    /// Keep a stream that is longer than that in the content store at DIR.
    #[arg(long, value_name = "DIR")]
    pub(crate) spill: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        lillux spawn --cmd python3 --arg -m --arg http.server --log server.log\n  \
        lillux status --pid 4711:88231904:1f0c9a3e     (the `handle` that spawn printed)")]
pub(crate) struct SpawnArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Append the program's output to this file [default: drop it].
    #[arg(long, value_name = "F")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        lillux status --pid 4711\n  \
        lillux status --pid 4711:88231904:1f0c9a3e     (not fooled when the number is used again)")]
pub(crate) struct StatusArgs {
    /// A process id, or the handle that `spawn` printed.
    #[arg(long, value_name = "P", value_parser = target, allow_hyphen_values = true)]
    pub(crate) pid: Target,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        lillux kill --pid 4711:88231904:1f0c9a3e\n  \
        lillux kill --pid 4711 --grace 10")]
pub(crate) struct KillArgs {
    /// A process id, or the handle that `spawn` printed.
    #[arg(long, value_name = "P", value_parser = target, allow_hyphen_values = true)]
    pub(crate) pid: Target,
    /// Seconds between SIGTERM and SIGKILL.
    #[arg(long, value_name = "S", value_parser = seconds_or_zero, allow_negative_numbers = true, default_value = "3")]
    pub(crate) grace: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        lillux watch --path config.yaml --timeout 60\n  \
        lillux watch --pid 4711:88231904:1f0c9a3e\n  \
        lillux watch --db registry.db --thread-id t-42 --timeout 600")]
#[command(group = clap::ArgGroup::new("what").required(true).args(["path", "pid", "db"]))]
pub(crate) struct WatchArgs {
    /// A file or folder; repeat it for more.
    #[arg(long, value_name = "P")]
    pub(crate) path: Vec<PathBuf>,
    /// A process id, or the handle that `spawn` printed.
    #[arg(long, value_name = "P", value_parser = target, allow_hyphen_values = true)]
    pub(crate) pid: Option<Target>,
    /// A SQLite file with a table `threads` (`thread_id`, `status`).
    #[arg(long, value_name = "F", requires = "thread_id")]
    pub(crate) db: Option<PathBuf>,
    /// The run to wait for.
    #[arg(long, value_name = "T", requires = "db", conflicts_with_all = ["path", "pid"])]
    pub(crate) thread_id: Option<String>,
    /// Give up after this many seconds.
    #[arg(long, value_name = "S", value_parser = seconds_or_zero, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}

/// A process, as it is typed.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Pid(i32),
    Handle(lillux::process::Handle),
}

fn target(text: &str) -> Result<Target, String> {
    if text.contains(':') {
        return text
            .parse()
            .map(Target::Handle)
            .map_err(|e: lillux::process::HandleError| e.to_string());
    }
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(Target::Pid(pid)),
        _ => Err(format!("process ids go from 1 to {}", i32::MAX)),
    }
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a variable is given as NAME=VALUE".into()),
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text)? {
        Duration::ZERO => Err("it must be more than 0".into()),
        time => Ok(time),
    }
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok();
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| "it is a number of seconds, such as 2 or 0.5".into())
}
