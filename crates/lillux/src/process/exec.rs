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
use super::keeper::{Event, GIVE_UP, Job, KeeperError, MARGIN, Order, Run, Supervisor};

/// How long a keeper that the command has stopped stays so.
const WAKE: Duration = Duration::from_secs(1);

/// How much is read from a stream at a time: what a pipe holds.
const CHUNK: usize = 64 * 1024;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody knows, or it has not: see [`Output::survivors`].
    Unknown,
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
    pub fn return_code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(-signal),
            Self::Unknown => None,
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
    /// How many of its processes, at least, could not be killed: they run as
    /// another user or hang in the kernel.
    pub survivors: u32,
}

impl Output {
    /// Whether it ended by itself, in time, with code 0, and left nothing behind.
    pub fn success(&self) -> bool {
        self.exit == Exit::Code(0) && !self.timed_out && self.survivors == 0
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
        let at = Instant::now();
        let image = Image::build(&command)?;
        let (stdin, input) = input_for(std::mem::take(&mut command.stdin))?;
        let (stdout, its_stdout) = if let Some(theirs) = command.stdout.take() {
            (None, theirs)
        } else {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
            (Some(ours), theirs)
        };
        let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let run = Run {
            // `Image::build` has seen to it that this fits.
            block: u32::try_from(image.block.len()).unwrap_or(u32::MAX),
            argc: image.argc,
            envc: image.envc,
            timeout: command.timeout,
            grace: command.grace,
            announce: command.on_start.is_some(),
            read_elsewhere: stdout.is_none(),
        };
        let order = self.order(&image, run, [stdin, its_stdout, its_stderr]);
        Ok(Begun {
            at,
            command,
            image,
            order,
            input,
            stdout,
            stderr,
        })
    }
}

/// A command that has begun. Dropping it ends its tree.
pub struct Begun<'a> {
    at: Instant,
    command: Command<'a>,
    image: Image,
    order: Order,
    input: Input,
    /// None where somebody else reads it.
    stdout: Option<OwnedFd>,
    stderr: OwnedFd,
}

impl Begun<'_> {
    /// Blocks until the keeper has something to tell, at most for `time`. With
    /// [`Command::on_start`] that is when the command runs. A program that is
    /// alone on its processor lets the keeper have it so.
    pub fn let_start(&self, time: Duration) {
        self.order.wait(time);
    }

    /// Waits until the command's tree is gone, as [`Supervisor::exec`] does.
    pub async fn finish(self) -> Result<Output, ExecError> {
        let Self {
            at,
            mut command,
            image,
            order,
            input,
            stdout,
            stderr,
        } = self;
        let job = order.job().await?;
        let mut streams = Streams {
            stdout: stdout.map(receiver).transpose()?,
            stderr: Some(receiver(stderr)?),
            captures: [
                Capture::new(command.output_limit, command.spill.clone()),
                Capture::new(command.output_limit, command.spill.take()),
            ],
            on_output: command.on_output.take(),
        };
        let ended = {
            let patience = command.timeout.map(|timeout| {
                let ending = command.grace.saturating_add(GIVE_UP + MARGIN);
                timeout.saturating_add(ending)
            });
            let watch = watch(job, patience, command.on_start.take());
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
            exit: ended.exit.unwrap_or(Exit::Unknown),
            stdout: stdout.finish().await,
            stderr: stderr.finish().await,
            timed_out: ended.timed_out,
            survivors: ended.survivors,
            duration: at.elapsed(),
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
    exit: Option<Exit>,
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

/// Listens to the keeper until the tree is gone. A keeper that has not been
/// heard of for as long as it can take is stuck itself, and is killed.
async fn watch(
    mut job: Job,
    patience: Option<Duration>,
    mut on_start: Option<StartCallback<'_>>,
) -> Result<Ended, Refusal> {
    let too_long = async {
        match patience {
            Some(patience) => sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(too_long);
    loop {
        let event = tokio::select! {
            event = job.event() => event,
            () = sleep(WAKE) => {
                job.wake();
                continue;
            }
            () = &mut too_long => {
                job.end_by_force().await;
                return Err(ExecError::Keeper(
                    "the process that kept the command did not answer and was killed".into(),
                )
                .into());
            }
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                // The warden ends what the keeper leaves behind, unless it was stopped too.
                job.wake();
                return Err(error.into());
            }
        };
        match event {
            Event::Started { pid, start_time } => {
                let handle = Handle::new(pid, start_time)?;
                if let Some(on_start) = on_start.take() {
                    on_start(&handle);
                }
            }
            Event::Refused { step, errno } => {
                job.release();
                let source = io::Error::from_raw_os_error(errno);
                return Err(Refusal::Launch { step, source });
            }
            Event::Ended { status, timed_out } => {
                job.release();
                return Ok(Ended {
                    exit: Some(Exit::from_wait_status(status)),
                    timed_out,
                    survivors: 0,
                });
            }
            Event::Stuck {
                survivors,
                status,
                timed_out,
            } => {
                return Ok(Ended {
                    exit: status.map(Exit::from_wait_status),
                    timed_out,
                    survivors,
                });
            }
            Event::Ready { .. } => return Err(out_of_turn(event).into()),
        }
    }
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
            let read = pipe::Receiver::try_read_buf;
            if self.read_once(stream, &mut chunk, read).await? {
                // One that writes faster than its output is taken must not keep all else waiting.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Reads what the pipes hold now that nobody of the tree is left to write.
    /// Somebody outside the tree may hold an end open and even write to it, so
    /// it waits for nothing and takes no more than there is. It asks the pipes
    /// themselves: the runtime may not have heard yet that there is something
    /// in them.
    async fn read_what_is_left(&mut self) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pipe = match stream {
                Stream::Stdout => &self.stdout,
                Stream::Stderr => &self.stderr,
            };
            let mut left = match pipe {
                Some(pipe) => rustix::io::ioctl_fionread(pipe)?,
                None => 0,
            };
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                let mut chunk = Vec::with_capacity(most);
                let ask = |pipe: &pipe::Receiver, chunk: &mut Vec<u8>| {
                    Ok(rustix::io::read(pipe, spare_capacity(chunk))?)
                };
                if !self.read_once(stream, &mut chunk, ask).await? {
                    break;
                }
                left = left.saturating_sub(chunk.len() as u64);
            }
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
