//! The description of a command: program, arguments, environment, streams and limits.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::capture::Stream;
use super::environment::Environment;
use super::handle::Handle;
use super::image::{Image, LaunchError};
use crate::cas::Cas;

/// Default number of bytes of each output stream that are kept in memory.
pub const DEFAULT_OUTPUT_LIMIT: usize = 1024 * 1024;

/// Default time between `SIGTERM` and `SIGKILL`.
pub const DEFAULT_GRACE: Duration = Duration::from_millis(500);

/// The standard input of a process.
#[derive(Debug, Default)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// Bytes from memory. The process may end without reading all of them.
    Bytes(Vec<u8>),
    /// An open pipe, file or socket that the process inherits.
    Fd(OwnedFd),
}

impl<T: Into<Vec<u8>>> From<T> for Stdin {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}

pub(super) type OutputCallback<'a> = Box<dyn FnMut(Stream, &[u8]) + Send + 'a>;
pub(super) type StartCallback<'a> = Box<dyn FnOnce(&Handle) + Send + 'a>;

/// A command to run: program, arguments, environment, streams and limits.
///
/// Arguments are passed to the program unchanged; no shell is involved.
pub struct Command<'a> {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) environment: Environment,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) stdin: Stdin,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) output_limit: usize,
    pub(super) spill: Option<Cas>,
    pub(super) on_output: Option<OutputCallback<'a>>,
    pub(super) on_start: Option<StartCallback<'a>>,
}

impl<'a> Command<'a> {
    /// Checks that the program and the working directory exist, without starting anything.
    pub fn check(&self) -> Result<(), LaunchError> {
        Image::check(self)
    }

    /// Creates a command. A program name without a slash is looked up in the `PATH` that the
    /// process will have.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            environment: Environment::default(),
            variables: Vec::new(),
            stdin: Stdin::default(),
            stdout: None,
            timeout: None,
            grace: DEFAULT_GRACE,
            output_limit: DEFAULT_OUTPUT_LIMIT,
            spill: None,
            on_output: None,
            on_start: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the working directory [default: the caller's].
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Sets which of the caller's variables the process inherits.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets a variable, in addition to [`Command::environment`].
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the standard input [default: `/dev/null`].
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdin>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Uses an open descriptor as the standard input of the process.
    #[must_use]
    pub fn stdin_fd(mut self, fd: OwnedFd) -> Self {
        self.stdin = Stdin::Fd(fd);
        self
    }

    /// Uses an open descriptor as the standard output of the process. Standard output is then
    /// not captured.
    #[must_use]
    pub fn stdout_fd(mut self, fd: OwnedFd) -> Self {
        self.stdout = Some(fd);
        self
    }

    /// Ends the tree after this time [default: no limit].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time between `SIGTERM` and `SIGKILL` [default: 0.5 s].
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how many bytes of each output stream are kept in memory [default: 1 MiB].
    #[must_use]
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// Stores a stream that exceeds the limit completely in `store`. Without a store, the excess
    /// is counted and dropped.
    #[must_use]
    pub fn spill_to(mut self, store: Cas) -> Self {
        self.spill = Some(store);
        self
    }

    /// Calls `callback` with every piece of output as it arrives, also beyond the limit.
    #[must_use]
    pub fn on_output(mut self, callback: impl FnMut(Stream, &[u8]) + Send + 'a) -> Self {
        self.on_output = Some(Box::new(callback));
        self
    }

    /// Calls `callback` with the handle of the process once it runs.
    #[must_use]
    pub fn on_start(mut self, callback: impl FnOnce(&Handle) + Send + 'a) -> Self {
        self.on_start = Some(Box::new(callback));
        self
    }
}

/// Omits variables and standard input, which may contain secrets.
impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("cwd", &self.cwd)
            .field("environment", &self.environment)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
