//! Arguments of the process commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// A program, its arguments and its environment.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct ProgramArgs {
    /// Program: a path, or a name to look up in PATH
    #[arg(long, value_name = "C")]
    pub(crate) cmd: OsString,
    /// Argument for the program; repeatable
    #[arg(long = "arg", value_name = "A", allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
    /// Working directory [default: current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set an environment variable; repeatable
    #[arg(long = "env", value_name = "K=V", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Which variables the program inherits, in addition to --env
    #[arg(long, value_enum, default_value_t = Inherit::All)]
    pub(crate) inherit: Inherit,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Inherit {
    /// All variables
    All,
    /// PATH, HOME, LANG, LC_*, TZ, TMPDIR, TERM, USER, SHELL
    Minimal,
    /// No variables
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
    /// Text for the program's standard input
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub(crate) stdin: Option<String>,
    /// Pass this command's standard input to the program
    #[arg(long, conflicts_with = "stdin")]
    pub(crate) stdin_pipe: bool,
    /// End the program and its descendants after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "S", value_parser = seconds_or_zero, allow_negative_numbers = true, default_value = "0.5")]
    pub(crate) grace: Duration,
    /// Maximum number of bytes of each output stream to print
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = lillux::process::DEFAULT_OUTPUT_LIMIT)]
    pub(crate) max_output: usize,
    /// Store longer streams in the content store at DIR
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
    /// Append the program's output to this file [default: discard it]
    #[arg(long, value_name = "F")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        lillux status --pid 4711\n  \
        lillux status --pid 4711:88231904:1f0c9a3e     (safe if the process id is reused)")]
pub(crate) struct StatusArgs {
    /// Process id, or a handle printed by `spawn`
    #[arg(long, value_name = "P", value_parser = target, allow_hyphen_values = true)]
    pub(crate) pid: Target,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        lillux kill --pid 4711:88231904:1f0c9a3e\n  \
        lillux kill --pid 4711 --grace 10")]
pub(crate) struct KillArgs {
    /// Process id, or a handle printed by `spawn`
    #[arg(long, value_name = "P", value_parser = target, allow_hyphen_values = true)]
    pub(crate) pid: Target,
    /// Seconds between SIGTERM and SIGKILL
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
    /// File or directory to watch; repeatable
    #[arg(long, value_name = "P")]
    pub(crate) path: Vec<PathBuf>,
    /// Process id, or a handle printed by `spawn`
    #[arg(long, value_name = "P", value_parser = target, allow_hyphen_values = true)]
    pub(crate) pid: Option<Target>,
    /// SQLite file with a table `threads` (`thread_id`, `status`)
    #[arg(long, value_name = "F", requires = "thread_id")]
    pub(crate) db: Option<PathBuf>,
    /// Id of the thread in the database to wait for
    #[arg(long, value_name = "T", requires = "db", conflicts_with_all = ["path", "pid"])]
    pub(crate) thread_id: Option<String>,
    /// Stop waiting after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds_or_zero, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}

/// A process on the command line.
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
        _ => Err(format!("a process id is between 1 and {}", i32::MAX)),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text)? {
        Duration::ZERO => Err("must be greater than 0".into()),
        time => Ok(time),
    }
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok();
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| "expected a number of seconds, such as 2 or 0.5".into())
}
