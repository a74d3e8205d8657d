//! The launcher: a process that confines itself and then executes the command.
//!
//! The sandbox starts it as a new, single-threaded program under the process supervisor, so it
//! can use ordinary Rust after its forks. In the tier `full` there are three processes:
//!
//! ```text
//! launcher ── init (process 1 of the namespace) ── command
//! ```
//!
//! The launcher creates the namespaces and waits, because a pid namespace starts with the next
//! child. Init builds the file system, gives up its privileges, forks the command and reaps
//! orphans; when it ends, the kernel kills every process of the namespace. In the tier
//! `landlock` the launcher becomes the command.

mod landlock;
mod namespaces;
mod network;
mod privileges;
mod root;
mod seccomp;
mod view;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use super::Tier;
use super::cgroup;
use super::policy::ResolvedPolicy;
use super::protected::{Guard, GuardKind};
use seccomp::Sockets;

pub(super) use landlock::{MIN_ABI, abi};
pub(super) use network::PROXY_PORT;
pub(super) use view::{VIEW, ViewRef, ViewSpec, read_frame, write_frame};

/// Exit code if the command could not be confined; it then did not start.
pub(super) const FAILED: u8 = 125;

/// Precedes the names of variables that only the command gets. The launcher must not see them,
/// because some, such as `LD_PRELOAD`, make a program load code.
pub(super) const VARIABLE: &str = "RYE_COMMAND_VARIABLE_";

/// What the sandbox tells the launcher, as its first argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchSpec {
    pub(super) tier: Tier,
    /// Precedes the launcher's error message, so that the sandbox can tell it from the output of
    /// a command.
    pub(super) nonce: String,
    /// Cgroup of the command.
    pub(super) cgroup: Option<PathBuf>,
    /// Working directory of the command.
    pub(super) cwd: PathBuf,
    /// Directory on the host that is `/tmp` inside.
    pub(super) tmp: PathBuf,
    pub(super) policy: ResolvedPolicy,
    /// Paths that are empty inside although a directory above them is visible.
    pub(super) masked: Vec<PathBuf>,
    /// Paths that the command can read, even below a masked one.
    pub(super) programs: Vec<PathBuf>,
    /// Socket of the egress proxy, if the command has a network.
    pub(super) proxy: Option<PathBuf>,
    /// The process whose view of the workspace the command gets.
    #[serde(default)]
    pub(super) view: Option<ViewRef>,
}

/// A step of the confinement failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
struct LaunchError {
    step: String,
    source: Box<dyn std::error::Error>,
}

/// Names the step that failed.
trait Context<T> {
    fn context(self, step: impl Into<String>) -> Result<T, LaunchError>;
}

impl<T, E: Into<Box<dyn std::error::Error>>> Context<T> for Result<T, E> {
    fn context(self, step: impl Into<String>) -> Result<T, LaunchError> {
        self.map_err(|error| LaunchError {
            step: step.into(),
            source: error.into(),
        })
    }
}

/// The parsed arguments of the launcher.
struct Launch {
    spec: LaunchSpec,
    guards: Vec<Guard>,
    command: Vec<OsString>,
}

/// Runs the launcher. The arguments are those that the sandbox passes; a program calls this
/// first in `main`, before it starts threads.
pub fn launch(arguments: Vec<OsString>) -> ExitCode {
    if arguments.first().is_some_and(|it| it == VIEW) {
        return view::run(arguments.get(1).map(OsString::as_os_str));
    }
    let Some(launch) = Launch::parse(arguments) else {
        return ExitCode::from(FAILED);
    };
    let nonce = launch.spec.nonce.clone();
    let entered = launch.spec.cgroup.as_deref().map_or(Ok(()), cgroup::enter);
    let failed = match (entered, launch.spec.tier) {
        (Err(source), _) => error("cannot enter the cgroup", source),
        (Ok(()), Tier::Full) => namespaces::run(&launch),
        (Ok(()), Tier::Landlock) => launch.run_under_landlock(),
    };
    report(&nonce, &failed)
}

/// Writes the reason for a failure to standard error.
fn report(nonce: &str, error: &LaunchError) -> ExitCode {
    // In one piece, so that a reader finds the nonce at the start of it.
    let text = format!("{nonce}{error}");
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(FAILED)
}

impl Launch {
    /// Parses `SPEC GUARD… -- PROGRAM ARGUMENT…`.
    fn parse(arguments: Vec<OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        let spec = serde_json::from_slice(arguments.next()?.as_bytes()).ok()?;
        let guards = arguments.by_ref().take_while(|it| it != "--");
        let guards = guards.map(|it| parse_guard(&it)).collect::<Option<_>>()?;
        let command: Vec<_> = arguments.collect();
        (!command.is_empty()).then_some(Self {
            spec,
            guards,
            command,
        })
    }

    fn run_under_landlock(&self) -> LaunchError {
        let confined = privileges::limit_resources(&self.spec.policy.limits)
            .and_then(|()| privileges::give_up())
            .and_then(|()| landlock::restrict_host(self))
            .and_then(|()| seccomp::apply(Sockets::None));
        match confined {
            Ok(()) => self.exec(),
            Err(error) => error,
        }
    }

    /// Executes the command in place of this process. Returns only if that fails.
    fn exec(&self) -> LaunchError {
        let [program, args @ ..] = self.command.as_slice() else {
            return error("cannot run the command", "it is empty");
        };
        let mut command = Command::new(program);
        for (name, value) in std::env::vars_os() {
            if let Some(original) = name.as_bytes().strip_prefix(VARIABLE.as_bytes()) {
                command
                    .env_remove(&name)
                    .env(OsStr::from_bytes(original), value);
            }
        }
        if self.spec.tier == Tier::Landlock
            && let Some(path) = std::env::var_os("PATH")
            && let Some(path) = readable_directories(&path)
        {
            command.env("PATH", path);
        }
        let source = command.args(args).current_dir(&self.spec.cwd).exec();
        error(
            format!("cannot run {}", Path::new(program).display()),
            source,
        )
    }
}

/// The directories of `PATH` that the command can read. Landlock hides no names, so a shell would
/// find a program in another directory, fail to run it and not search further.
fn readable_directories(path: &OsStr) -> Option<OsString> {
    let dirs = std::env::split_paths(path);
    let readable = dirs.filter(|dir| dir.is_relative() || std::fs::read_dir(dir).is_ok());
    std::env::join_paths(readable).ok()
}

fn error(step: impl Into<String>, source: impl Into<Box<dyn std::error::Error>>) -> LaunchError {
    LaunchError {
        step: step.into(),
        source: source.into(),
    }
}

/// A guard as an argument: `r:PATH` or `s:PATH`.
pub(super) fn guard_argument(guard: &Guard) -> OsString {
    let mut text = OsString::from(match guard.kind {
        GuardKind::ReadOnly => "r:",
        GuardKind::Socket => "s:",
    });
    text.push(&guard.path);
    text
}

fn parse_guard(text: &OsStr) -> Option<Guard> {
    let kind = match text.as_bytes().get(..2)? {
        b"r:" => GuardKind::ReadOnly,
        b"s:" => GuardKind::Socket,
        _ => return None,
    };
    let path = PathBuf::from(OsStr::from_bytes(text.as_bytes().get(2..)?));
    Some(Guard { path, kind })
}
