//! What a command has at hand: its streams and the shell.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::meter::Halt;
use super::run::Shell;
use crate::files::Files;
use crate::path::resolve;

/// The most that goes through a pipe.
const PIPE: usize = 8 * 1024 * 1024;

/// Where a stream goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sink {
    /// To whoever runs the script, as output or as complaint.
    Out,
    Err,
    /// To the next command.
    Pipe,
    File(String),
    Nothing,
}

/// A command's streams, and the shell that it runs in.
pub(crate) struct Io<'s, 'a> {
    pub(crate) name: String,
    pub(crate) shell: &'s mut Shell<'a>,
    /// What it reads, where that is not what the script was given.
    pub(crate) stdin: Option<Arc<Vec<u8>>>,
    pub(crate) out: Sink,
    pub(crate) err: Sink,
    pub(crate) pipe: &'s mut Vec<u8>,
}

impl Io<'_, '_> {
    /// All that is to be read, once.
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

    /// A file's bytes, or what is to be read where the path is `-`.
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

    /// Says what is wrong.
    pub(crate) fn complain(&mut self, what: &str) {
        let line = format!("{}: {what}\n", self.name);
        let sink = self.err.clone();
        // Whoever closed its mouth does not hear it.
        let _ = self.write(&sink, line.as_bytes());
    }

    /// What came of one of several; what is wrong with it is said, and counts as 1.
    pub(crate) fn or_complain(&mut self, outcome: Result<(), Halt>) -> Result<i32, Halt> {
        match outcome {
            Ok(()) => Ok(0),
            Err(Halt::Fail(what)) => {
                self.complain(&what);
                Ok(1)
            }
            Err(halt) => Err(halt),
        }
    }

    fn write(&mut self, sink: &Sink, bytes: &[u8]) -> Result<(), Halt> {
        match sink {
            Sink::Out => self.shell.out.take(bytes, self.shell.watcher),
            Sink::Err => self.shell.err.take(bytes, self.shell.watcher),
            Sink::Pipe if self.pipe.len() + bytes.len() > PIPE => {
                return Err(Halt::TooMuch("more than 8 MiB go through a pipe"));
            }
            Sink::Pipe => self.pipe.extend_from_slice(bytes),
            Sink::File(path) => self.files().append(path, bytes)?,
            Sink::Nothing => {}
        }
        Ok(())
    }
}
