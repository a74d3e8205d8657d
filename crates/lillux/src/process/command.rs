//! What to run, and under which limits.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::capture::Stream;
use super::environment::Environment;
use super::handle::Handle;
use crate::cas::Cas;

/// How much of each output stream is kept in memory unless a [`Command`] says otherwise.
pub const DEFAULT_OUTPUT_LIMIT: usize = 1024 * 1024;

/// How long a tree that is asked to end may take before it is killed.
pub const DEFAULT_GRACE: Duration = Duration::from_millis(500);

/// What a process reads on its standard input.
#[derive(Debug, Default)]
pub enum Stdin {
    /// Nothing: end of file at once.
    #[default]
    Null,
    /// These bytes, of any number; a process that does not read them is not waited for.
    Bytes(Vec<u8>),
    /// An open pipe, file or socket, handed to the process as it is.
    Fd(OwnedFd),
}

impl<T: Into<Vec<u8>>> From<T> for Stdin {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}

pub(super) type OutputCallback<'a> = Box<dyn FnMut(Stream, &[u8]) + Send + 'a>;
pub(super) type StartCallback<'a> = Box<dyn FnOnce(&Handle) + Send + 'a>;

/// A process to be: program, arguments, surroundings and limits.
///
/// Arguments are passed on as they are; no shell is involved unless it is the program.
pub struct Command<'a> {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) environment: Environment,
    pub(super) added: Vec<(OsString, OsString)>,
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
    /// A program: a path if it holds a slash, else a name looked up on the process's own `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            environment: Environment::default(),
            added: Vec::new(),
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

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The folder to run in; the caller's own unless given.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// Which variables to start from.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets a variable, on top of [`Command::environment`].
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.added
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// What standard input gives.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdin>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Hands an open descriptor to the process as its standard input.
    #[must_use]
    pub fn stdin_fd(mut self, fd: OwnedFd) -> Self {
        self.stdin = Stdin::Fd(fd);
        self
    }

    /// Hands an open descriptor to the process as its standard output, to be read
    /// by whoever has the other end, as slowly as they like. Nothing of it is
    /// captured.
    #[must_use]
    pub fn stdout_fd(mut self, fd: OwnedFd) -> Self {
        self.stdout = Some(fd);
        self
    }

    /// Ends the tree after this time; without it, a command may run forever.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long the tree has between `SIGTERM` and `SIGKILL`; half a second unless given.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How many bytes of each output stream are kept in memory; 1 MiB unless given.
    #[must_use]
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// Where a stream that exceeds the limit is kept in full. Without it, the excess is counted and dropped.
    #[must_use]
    pub fn spill_to(mut self, store: Cas) -> Self {
        self.spill = Some(store);
        self
    }

    /// Is given every piece of output as it arrives, beyond the limit too.
    #[must_use]
    pub fn on_output(mut self, callback: impl FnMut(Stream, &[u8]) + Send + 'a) -> Self {
        self.on_output = Some(Box::new(callback));
        self
    }

    /// Is given the handle of the process once it runs, to be written down.
    #[must_use]
    pub fn on_start(mut self, callback: impl FnOnce(&Handle) + Send + 'a) -> Self {
        self.on_start = Some(Box::new(callback));
        self
    }
}

/// Values of variables and standard input may be secrets, so they are not shown.
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
