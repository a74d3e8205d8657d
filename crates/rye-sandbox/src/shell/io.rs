//! The execution environment of a command: its streams and the shell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::meter::Halt;
use super::run::Shell;
use super::syntax::{Mode, Stream, Streams};
use crate::files::Files;
use crate::path::resolve;

/// Maximum amount of data in a pipe or a substitution, in bytes.
const MAX_PIPE_LEN: usize = 8 * 1024 * 1024;

/// The streams of a command. Nested commands share them.
#[derive(Debug, Clone)]
pub(crate) struct StandardStreams {
    pub(crate) stdin: Arc<Mutex<Input>>,
    pub(crate) out: Sink,
    pub(crate) err: Sink,
}

impl StandardStreams {
    pub(crate) fn new(stdin: Vec<u8>) -> Self {
        Self {
            stdin: Input::new(Arc::new(stdin)),
            out: Sink::Out,
            err: Sink::Err,
        }
    }
}

/// An input that is read up to a position.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Arc<Vec<u8>>,
    at: usize,
}

impl Input {
    pub(crate) fn new(bytes: Arc<Vec<u8>>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { bytes, at: 0 }))
    }
}

/// The destination of a stream.
#[derive(Debug, Clone)]
pub(crate) enum Sink {
    /// Standard output of the script.
    Out,
    Err,
    /// Input of the next command, or the text of a substitution.
    Buffer(Arc<Mutex<Vec<u8>>>),
    File(String),
    Nothing,
}

/// A redirection with its path expanded.
pub(crate) enum ResolvedRedirect {
    Input(String),
    Text(String),
    Output(Streams, Mode, String),
    Duplicate(Stream, Stream),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running command and its shell.
pub(crate) struct Io<'s, 'a> {
    pub(crate) name: String,
    pub(crate) shell: &'s mut Shell<'a>,
}

impl Io<'_, '_> {
    /// Consumes standard input.
    pub(crate) fn stdin(&mut self) -> Arc<Vec<u8>> {
        let mut input = lock(&self.shell.streams.stdin);
        let at = std::mem::take(&mut input.at);
        let bytes = std::mem::take(&mut input.bytes);
        match at {
            0 => bytes,
            at => Arc::new(bytes[at..].to_vec()),
        }
    }

    /// Reads a line of standard input, with its line break unless the input ends without one.
    pub(crate) fn stdin_line(&mut self) -> Vec<u8> {
        let mut input = lock(&self.shell.streams.stdin);
        let rest = &input.bytes[input.at..];
        let line = rest.split_inclusive(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default().to_vec();
        input.at += line.len();
        line
    }

    pub(crate) fn files(&self) -> MutexGuard<'_, Files> {
        lock(self.shell.files)
    }

    pub(crate) fn resolve(&self, path: &str) -> Result<String, Halt> {
        Ok(resolve(&self.shell.state.cwd, path)?)
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
        let sink = self.shell.streams.out.clone();
        self.write(&sink, bytes)
    }

    pub(crate) async fn line(&mut self, text: &str) -> Result<(), Halt> {
        self.print(format!("{text}\n").as_bytes()).await
    }

    /// Writes an error message, prefixed with the command's name.
    pub(crate) fn report_error(&mut self, what: &str) {
        let line = format!("{}: {what}\n", self.name);
        let sink = self.shell.streams.err.clone();
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
            Sink::Buffer(buffer) => {
                let mut buffer = lock(buffer);
                if buffer.len() + bytes.len() > MAX_PIPE_LEN {
                    return Err(Halt::LimitExceeded("a pipe contains more than 8 MiB"));
                }
                buffer.extend_from_slice(bytes);
            }
            Sink::File(path) => self.files().append(path, bytes)?,
            Sink::Nothing => {}
        }
        Ok(())
    }

    /// Redirects the streams of the shell.
    pub(crate) fn redirect(&mut self, redirects: Vec<ResolvedRedirect>) -> Result<(), Halt> {
        for redirect in redirects {
            match redirect {
                ResolvedRedirect::Input(path) => {
                    let bytes = match path.as_str() {
                        "/dev/null" => Arc::default(),
                        path => {
                            let path = self.resolve(path)?;
                            self.files().read(&path)?
                        }
                    };
                    self.shell.streams.stdin = Input::new(bytes);
                }
                ResolvedRedirect::Text(text) => {
                    self.shell.streams.stdin = Input::new(Arc::new(text.into_bytes()));
                }
                ResolvedRedirect::Duplicate(stream, other) => {
                    let streams = &mut self.shell.streams;
                    match (stream, other) {
                        (Stream::Err, Stream::Out) => streams.err = streams.out.clone(),
                        (Stream::Out, Stream::Err) => streams.out = streams.err.clone(),
                        _ => {}
                    }
                }
                ResolvedRedirect::Output(which, mode, path) => {
                    let sink = self.open(&path, mode)?;
                    let streams = &mut self.shell.streams;
                    if which != Streams::One(Stream::Out) {
                        streams.err = sink.clone();
                    }
                    if which != Streams::One(Stream::Err) {
                        streams.out = sink;
                    }
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, path: &str, mode: Mode) -> Result<Sink, Halt> {
        match path {
            "/dev/null" => return Ok(Sink::Nothing),
            "/dev/stdout" => return Ok(self.shell.streams.out.clone()),
            "/dev/stderr" => return Ok(self.shell.streams.err.clone()),
            _ => {}
        }
        let path = self.resolve(path)?;
        match mode {
            Mode::Replace => self.files().write(&path, b"")?,
            Mode::Append => self.files().append(&path, b"")?,
        }
        Ok(Sink::File(path))
    }
}

/// A sink and the buffer that it fills.
pub(crate) fn buffer() -> (Sink, Arc<Mutex<Vec<u8>>>) {
    let buffer = Arc::<Mutex<Vec<u8>>>::default();
    (Sink::Buffer(Arc::clone(&buffer)), buffer)
}

/// The content of a buffer.
pub(crate) fn take_buffer(buffer: &Mutex<Vec<u8>>) -> Vec<u8> {
    std::mem::take(&mut *lock(buffer))
}
