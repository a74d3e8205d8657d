//! The execution environment of a command: its streams and the shell.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::meter::Halt;
use super::run::Shell;
use crate::files::Files;
use crate::path::resolve;

/// Maximum amount of data in a pipe, in bytes.
const MAX_PIPE_LEN: usize = 8 * 1024 * 1024;

/// The destination of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sink {
    /// Standard output of the script.
    Out,
    Err,
    /// Standard input of the next command.
    Pipe,
    File(String),
    Nothing,
}

/// A command's streams and its shell.
pub(crate) struct Io<'s, 'a> {
    pub(crate) name: String,
    pub(crate) shell: &'s mut Shell<'a>,
    /// Standard input, if it differs from the script's.
    pub(crate) stdin: Option<Arc<Vec<u8>>>,
    pub(crate) out: Sink,
    pub(crate) err: Sink,
    pub(crate) pipe: &'s mut Vec<u8>,
}

impl Io<'_, '_> {
    /// Consumes standard input.
    pub(crate) fn stdin(&mut self) -> Arc<Vec<u8>> {
        let own = self.stdin.as_mut();
        std::mem::take(own.unwrap_or(&mut self.shell.stdin))
    }

    pub(crate) fn files(&self) -> MutexGuard<'_, Files> {
        let files = self.shell.files.lock();
        files.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn resolve(&self, path: &str) -> Result<String, Halt> {
        Ok(resolve(&self.shell.cwd, path)?)
    }

    /// Reads a file, or standard input if the path is `-`.
    pub(crate) async fn read(&mut self, path: &str) -> Result<Arc<Vec<u8>>, Halt> {
        let bytes = match path {
            "-" => self.stdin(),
            "/dev/null" => Arc::default(),
            path => {
                let path = self.resolve(path)?;
                self.files().read(&path)?
            }
        };
        self.spend(bytes.len()).await?;
        Ok(bytes)
    }

    pub(crate) async fn spend(&mut self, work: usize) -> Result<(), Halt> {
        self.shell.meter.spend(work).await
    }

    pub(crate) async fn print(&mut self, bytes: &[u8]) -> Result<(), Halt> {
        self.spend(bytes.len()).await?;
        let sink = self.out.clone();
        self.write(&sink, bytes)
    }

    pub(crate) async fn line(&mut self, text: &str) -> Result<(), Halt> {
        self.print(format!("{text}\n").as_bytes()).await
    }

    /// Writes an error message, prefixed with the command's name.
    pub(crate) fn report_error(&mut self, what: &str) {
        let line = format!("{}: {what}\n", self.name);
        let sink = self.err.clone();
        // A failed write to standard error cannot be reported anywhere.
        let _ = self.write(&sink, line.as_bytes());
    }

    /// Reports a failure with status 1, so that the command can continue with its other
    /// operands.
    pub(crate) fn report_failure(&mut self, outcome: Result<(), Halt>) -> Result<i32, Halt> {
        match outcome {
            Ok(()) => Ok(0),
            Err(Halt::Fail(what)) => {
                self.report_error(&what);
                Ok(1)
            }
            Err(halt) => Err(halt),
        }
    }

    fn write(&mut self, sink: &Sink, bytes: &[u8]) -> Result<(), Halt> {
        match sink {
            Sink::Out => self.shell.out.push(bytes, self.shell.observer),
            Sink::Err => self.shell.err.push(bytes, self.shell.observer),
            Sink::Pipe if self.pipe.len() + bytes.len() > MAX_PIPE_LEN => {
                return Err(Halt::LimitExceeded("a pipe contains more than 8 MiB"));
            }
            Sink::Pipe => self.pipe.extend_from_slice(bytes),
            Sink::File(path) => self.files().append(path, bytes)?,
            Sink::Nothing => {}
        }
        Ok(())
    }
}
