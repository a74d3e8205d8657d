//! Running a command to its end.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;
use tokio::time::sleep;

use super::capture::{Capture, Captured, Stream};
use super::command::{Command, OutputCallback, StartCallback, Stdin};
use super::handle::Handle;
use super::image::{Image, LaunchError, Step};
use super::keeper::{Event, Job, KeeperError, Order, Supervisor};

/// How much is read from a stream at a time: what a pipe holds.
const CHUNK: usize = 64 * 1024;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    fn from_wait_status(status: i32) -> Self {
        let status = ExitStatus::from_raw(status);
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }

    /// One number for both: the exit code, or the signal's number negated.
    pub fn return_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => -signal,
        }
    }
}

/// What came of a command.
#[derive(Debug)]
pub struct Output {
    /// How its main process ended.
    pub exit: Exit,
    /// What it and its descendants wrote to standard output.
    pub stdout: Captured,
    /// What they wrote to standard error.
    pub stderr: Captured,
    /// Whether it was ended because its time was up.
    pub timed_out: bool,
    /// From the call to the end of the tree.
    pub duration: Duration,
    /// How many of its processes could not be killed: they run as another user
    /// or hang in the kernel. They have been sent `SIGKILL`.
    pub survivors: u32,
}

impl Output {
    /// Whether it ended by itself, in time, with code 0.
    pub fn success(&self) -> bool {
        self.exit == Exit::Code(0) && !self.timed_out
    }
}

/// Why there is no [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The process that keeps the command died, or none could be had. The
    /// command, if it ran, has been killed.
    #[error("{0}")]
    Keeper(String),
    /// Pipes could not be made or read.
    #[error("cannot talk to the process: {0}")]
    Io(#[from] io::Error),
}

impl From<KeeperError> for ExecError {
    fn from(error: KeeperError) -> Self {
        Self::Keeper(error.to_string())
    }
}

impl Supervisor {
    /// Runs a command and waits until its tree is gone.
    ///
    /// When the main process ends, descendants that are still there are ended
    /// too: they have the command's grace between `SIGTERM` and `SIGKILL`. The
    /// same happens when the time is up, when this future is dropped, and when
    /// the calling program dies.
    ///
    /// Must be called within a Tokio runtime that has I/O and time enabled.
    pub async fn exec(&self, command: Command<'_>) -> Result<Output, ExecError> {
        self.begin(command)?.finish().await
    }

    /// Begins a command, to be finished later: `exec` in two steps, for a
    /// program that has something to do in between, such as building its
    /// runtime. If a keeper is idle the command starts at once, else with
    /// [`Begun::finish`]. Its time counts from there, too.
    pub fn begin<'a>(&self, mut command: Command<'a>) -> Result<Begun<'a>, ExecError> {
        let begun = Instant::now();
        let image = Image::build(&command)?;
        let (stdin, input) = input_for(std::mem::take(&mut command.stdin))?;
        let (stdout, its_stdout) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let its_streams = [stdin, its_stdout, its_stderr];
        let announce = command.on_start.is_some();
        let order = self.order(&image, its_streams, command.grace, announce);
        Ok(Begun {
            begun,
            command,
            image,
            order,
            input,
            output: [stdout, stderr],
        })
    }
}

/// A command that has begun. Dropping it ends its tree.
pub struct Begun<'a> {
    begun: Instant,
    command: Command<'a>,
    image: Image,
    order: Order,
    input: Input,
    output: [OwnedFd; 2],
}

impl Begun<'_> {
    /// Waits until the command's tree is gone, as [`Supervisor::exec`] does.
    pub async fn finish(self) -> Result<Output, ExecError> {
        let Self {
            begun,
            mut command,
            image,
            order,
            input,
            output: [stdout, stderr],
        } = self;
        let job = order.job().await?;
        let mut streams = Streams {
            stdout: Some(receiver(stdout)?),
            stderr: Some(receiver(stderr)?),
            captures: [
                Capture::new(command.output_limit, command.spill.clone()),
                Capture::new(command.output_limit, command.spill.take()),
            ],
            on_output: command.on_output.take(),
        };
        let ended = {
            let on_start = command.on_start.take();
            let watch = watch(job, command.timeout, command.grace, on_start);
            let read = streams.read();
            let write = write_all(input);
            tokio::pin!(watch, read, write);
            let (mut reading, mut writing) = (true, true);
            loop {
                tokio::select! {
                    ended = &mut watch => break match ended {
                        Err(Refusal::Launch { step, source }) => {
                            return Err(image.explain(&command, step, source).into());
                        }
                        Err(Refusal::Other(error)) => return Err(error),
                        Ok(ended) => ended,
                    },
                    result = &mut read, if reading => { result?; reading = false; }
                    result = &mut write, if writing => { result?; writing = false; }
                }
            }
        };
        streams.read_what_is_left().await?;
        let [stdout, stderr] = streams.captures;
        Ok(Output {
            exit: Exit::from_wait_status(ended.status),
            stdout: stdout.finish().await,
            stderr: stderr.finish().await,
            timed_out: ended.timed_out,
            survivors: ended.survivors,
            duration: begun.elapsed(),
        })
    }
}

impl std::fmt::Debug for Begun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

struct Ended {
    status: i32,
    timed_out: bool,
    survivors: u32,
}

/// Why a command did not come to its end.
enum Refusal {
    Launch { step: Step, source: io::Error },
    Other(ExecError),
}

impl<E: Into<ExecError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Listens to the keeper until the tree is gone, and ends the tree when its time is up.
async fn watch(
    mut job: Job,
    timeout: Option<Duration>,
    grace: Duration,
    mut on_start: Option<StartCallback<'_>>,
) -> Result<Ended, Refusal> {
    let mut timed_out = false;
    let mut exited = None;
    let time_is_up = async {
        match timeout {
            Some(timeout) => sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(time_is_up);
    let (status, survivors) = loop {
        tokio::select! {
            // A process that ends as its time is up has ended in time.
            biased;
            event = job.event() => match (event?, exited) {
                (Event::Started { pid, start_time }, None) => {
                    let handle = Handle::new(pid, start_time)?;
                    if let Some(on_start) = on_start.take() {
                        on_start(&handle);
                    }
                }
                (Event::Refused { step, errno }, None) => {
                    job.release();
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(Refusal::Launch { step, source });
                }
                (Event::Exited { status }, None) => exited = Some(status),
                (Event::Ended { status }, None) | (Event::Gone, Some(status)) => break (status, 0),
                (Event::Stuck { survivors }, Some(status)) => break (status, survivors),
                (Event::Stuck { survivors }, None) => return Err(unkillable(survivors).into()),
                (event, _) => return Err(out_of_turn(event).into()),
            },
            // Once the main process has ended, the keeper ends the rest without being asked.
            () = &mut time_is_up, if !timed_out && exited.is_none() => {
                timed_out = true;
                job.end(grace)?;
            }
        }
    };
    if survivors == 0 && !timed_out {
        job.release();
    }
    Ok(Ended {
        status,
        timed_out,
        survivors,
    })
}

fn unkillable(survivors: u32) -> ExecError {
    ExecError::Keeper(format!(
        "the process could not be killed, it hangs in the kernel or runs as another user \
         ({survivors} processes left)"
    ))
}

fn out_of_turn(event: Event) -> ExecError {
    ExecError::Keeper(format!(
        "the process that kept the command spoke out of turn: {event:?}"
    ))
}

/// The two output streams and what becomes of them.
struct Streams<'a> {
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    captures: [Capture; 2],
    on_output: Option<OutputCallback<'a>>,
}

impl Streams<'_> {
    /// Reads both until both are closed.
    async fn read(&mut self) -> io::Result<()> {
        let mut chunk = Vec::with_capacity(CHUNK);
        while self.stdout.is_some() || self.stderr.is_some() {
            let stream = tokio::select! {
                ready = readable(self.stdout.as_ref()) => { ready?; Stream::Stdout }
                ready = readable(self.stderr.as_ref()) => { ready?; Stream::Stderr }
            };
            self.read_once(stream, &mut chunk, pipe::Receiver::try_read_buf)
                .await?;
        }
        Ok(())
    }

    /// Reads what the pipes still hold once nobody of the tree is left to
    /// write. Somebody outside the tree may hold an end open, so it does not
    /// wait for them to be closed. It asks the pipes themselves: the runtime
    /// may not have heard yet that there is something in them.
    async fn read_what_is_left(&mut self) -> io::Result<()> {
        let ask = |pipe: &pipe::Receiver, chunk: &mut Vec<u8>| {
            Ok(rustix::io::read(pipe, spare_capacity(chunk))?)
        };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut chunk = Vec::with_capacity(CHUNK);
            while self.read_once(stream, &mut chunk, ask).await? {}
        }
        Ok(())
    }

    /// Reads a stream once, without waiting. Tells whether there may be more.
    async fn read_once(
        &mut self,
        stream: Stream,
        chunk: &mut Vec<u8>,
        read: impl Fn(&pipe::Receiver, &mut Vec<u8>) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let (pipe, capture) = match stream {
            Stream::Stdout => (&mut self.stdout, &mut self.captures[0]),
            Stream::Stderr => (&mut self.stderr, &mut self.captures[1]),
        };
        let Some(open) = pipe.as_ref() else {
            return Ok(false);
        };
        chunk.clear();
        match read(open, chunk) {
            Ok(0) => *pipe = None,
            Ok(_) => {
                if let Some(on_output) = &mut self.on_output {
                    on_output(stream, chunk);
                }
                capture.take(chunk).await;
                return Ok(true);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}

async fn readable(pipe: Option<&pipe::Receiver>) -> io::Result<()> {
    match pipe {
        Some(pipe) => pipe.readable().await,
        None => std::future::pending().await,
    }
}

/// What is still to be written to standard input, and where.
type Input = Option<(OwnedFd, Vec<u8>)>;

/// What the process gets as standard input, and our end of it.
fn input_for(stdin: Stdin) -> io::Result<(OwnedFd, Input)> {
    match stdin {
        Stdin::Null => Ok((File::open("/dev/null")?.into(), None)),
        Stdin::Fd(fd) => Ok((fd, None)),
        Stdin::Bytes(bytes) if bytes.is_empty() => input_for(Stdin::Null),
        Stdin::Bytes(bytes) => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((theirs, Some((ours, bytes))))
        }
    }
}

/// Writes standard input and closes it. A process that stops reading has had enough.
async fn write_all(input: Input) -> io::Result<()> {
    let Some((pipe, bytes)) = input else {
        return Ok(());
    };
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let pipe = pipe::Sender::from_owned_fd(pipe)?;
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(left) {
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receiver(pipe: OwnedFd) -> io::Result<pipe::Receiver> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    pipe::Receiver::from_owned_fd(pipe)
}
