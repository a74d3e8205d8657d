//! Runs a command to its end.

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

use super::capture::{CapturedOutput, OutputCapture, Stream};
use super::command::{Command, OutputCallback, StartCallback, Stdin};
use super::handle::Handle;
use super::image::{Image, LaunchError, Step};
use super::supervisor::{Event, Job, KILL_TIMEOUT, MARGIN, ReaperError, RunRequest, Supervisor};

/// Interval at which helper processes that the command may have stopped are continued.
const CONTINUE_INTERVAL: Duration = Duration::from_secs(1);

/// Read buffer size: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// The status is unknown, or the process survives: see [`Output::survivors`].
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

    /// The exit code, or the negated number of the signal.
    pub fn return_code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(-signal),
            Self::Unknown => None,
        }
    }
}

/// Result of a command that ran.
#[derive(Debug)]
pub struct Output {
    /// How the main process ended.
    pub exit: Exit,
    /// Standard output of the tree.
    pub stdout: CapturedOutput,
    /// Standard error of the tree.
    pub stderr: CapturedOutput,
    /// Whether the tree was ended because of the timeout.
    pub timed_out: bool,
    /// Time from the call to the end of the tree.
    pub duration: Duration,
    /// Minimum number of processes that could not be killed because they run as another user
    /// or hang in the kernel.
    pub survivors: u32,
}

impl Output {
    /// Whether the command exited with code 0 in time and no process survives.
    pub fn success(&self) -> bool {
        self.exit == Exit::Code(0) && !self.timed_out && self.survivors == 0
    }
}

/// Error of [`Supervisor::exec`].
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The helper process that supervises the command died or could not be started. The
    /// command, if it ran, was killed.
    #[error("{0}")]
    Supervision(String),
    /// The pipes of the command could not be created, read or written.
    #[error("cannot communicate with the process: {0}")]
    Io(#[from] io::Error),
}

impl From<ReaperError> for ExecError {
    fn from(error: ReaperError) -> Self {
        Self::Supervision(error.to_string())
    }
}

impl Supervisor {
    /// Runs a command and waits until its tree is gone.
    ///
    /// When the main process ends, its remaining descendants are ended too: `SIGTERM`, then
    /// `SIGKILL` after the command's grace time. The same happens after the timeout, when this
    /// future is dropped, and when the calling program dies.
    ///
    /// Must be called within a Tokio runtime that has I/O and time enabled.
    pub async fn exec(&self, mut command: Command<'_>) -> Result<Output, ExecError> {
        let started_at = Instant::now();
        let image = Image::build(&command)?;
        let (stdin, input) = open_stdin(std::mem::take(&mut command.stdin))?;
        let (stdout, its_stdout) = if let Some(theirs) = command.stdout.take() {
            (None, theirs)
        } else {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
            (Some(ours), theirs)
        };
        let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let request = RunRequest {
            // `Image::build` checks that the size fits.
            block_size: u32::try_from(image.block.len()).unwrap_or(u32::MAX),
            argc: image.argc,
            envc: image.envc,
            timeout: command.timeout,
            grace: command.grace,
            announce_start: command.on_start.is_some(),
            external_stdout: stdout.is_none(),
        };
        let job = self
            .run(&image, request, [stdin, its_stdout, its_stderr])
            .await?;
        let mut streams = Streams {
            stdout: stdout.map(receiver).transpose()?,
            stderr: Some(receiver(stderr)?),
            captures: [
                OutputCapture::new(command.output_limit, command.spill.clone()),
                OutputCapture::new(command.output_limit, command.spill.take()),
            ],
            on_output: command.on_output.take(),
        };
        let ended = {
            let reaper_timeout = command.timeout.map(|timeout| {
                let ending = command.grace.saturating_add(KILL_TIMEOUT + MARGIN);
                timeout.saturating_add(ending)
            });
            let watch = watch(job, reaper_timeout, command.on_start.take());
            let read = streams.read();
            let write = write_all(input);
            tokio::pin!(watch, read, write);
            let (mut reading, mut writing) = (true, true);
            loop {
                tokio::select! {
                    ended = &mut watch => break match ended {
                        Err(JobError::Launch { step, source }) => {
                            return Err(image.launch_error(&command, step, source).into());
                        }
                        Err(JobError::Other(error)) => return Err(error),
                        Ok(ended) => ended,
                    },
                    result = &mut read, if reading => { result?; reading = false; }
                    result = &mut write, if writing => { result?; writing = false; }
                }
            }
        };
        streams.read_rest().await?;
        let [stdout, stderr] = streams.captures;
        Ok(Output {
            exit: ended.exit.unwrap_or(Exit::Unknown),
            stdout: stdout.finish().await,
            stderr: stderr.finish().await,
            timed_out: ended.timed_out,
            survivors: ended.survivors,
            duration: started_at.elapsed(),
        })
    }
}

/// How a tree ended.
struct TreeExit {
    exit: Option<Exit>,
    timed_out: bool,
    survivors: u32,
}

/// Error of [`watch`]. A launch error still lacks the details of the command.
enum JobError {
    Launch { step: Step, source: io::Error },
    Other(ExecError),
}

impl<E: Into<ExecError>> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Receives events until the tree is gone. Kills the tree if the reaper has not reported its end
/// after `timeout`.
async fn watch(
    mut job: Job,
    timeout: Option<Duration>,
    mut on_start: Option<StartCallback<'_>>,
) -> Result<TreeExit, JobError> {
    let timed_out = async {
        match timeout {
            Some(timeout) => sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(timed_out);
    loop {
        let event = tokio::select! {
            event = job.event() => event,
            () = sleep(CONTINUE_INTERVAL) => {
                job.continue_helpers();
                continue;
            }
            () = &mut timed_out => {
                job.kill_tree().await;
                return Err(ExecError::Supervision(
                    "the process that supervised the command did not answer and was killed".into(),
                )
                .into());
            }
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                // The fork server ends the reaper's tree, but it may have been stopped too.
                job.continue_helpers();
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
            Event::LaunchFailed { step, errno } => {
                job.release();
                let source = io::Error::from_raw_os_error(errno);
                return Err(JobError::Launch { step, source });
            }
            Event::Ended { status, timed_out } => {
                job.release();
                return Ok(TreeExit {
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
                return Ok(TreeExit {
                    exit: status.map(Exit::from_wait_status),
                    timed_out,
                    survivors,
                });
            }
            Event::Ready { .. } => return Err(unexpected(event).into()),
        }
    }
}

fn unexpected(event: Event) -> ExecError {
    ExecError::Supervision(format!(
        "unexpected event from the process that supervised the command: {event:?}"
    ))
}

/// The output pipes of a command and their captures.
struct Streams<'a> {
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    captures: [OutputCapture; 2],
    on_output: Option<OutputCallback<'a>>,
}

impl Streams<'_> {
    /// Reads both pipes until both are closed.
    async fn read(&mut self) -> io::Result<()> {
        let mut chunk = Vec::with_capacity(CHUNK);
        while self.stdout.is_some() || self.stderr.is_some() {
            let stream = tokio::select! {
                ready = readable(self.stdout.as_ref()) => { ready?; Stream::Stdout }
                ready = readable(self.stderr.as_ref()) => { ready?; Stream::Stderr }
            };
            let read = pipe::Receiver::try_read_buf;
            if self.read_once(stream, &mut chunk, read).await? {
                // A command that writes quickly must not starve other tasks.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Reads the rest of the pipes after the tree has ended. A process outside the tree may
    /// hold an end open and even write to it, so this does not wait and reads only as many
    /// bytes as there are now. It reads the pipes directly, because the runtime may not know
    /// yet that they are readable.
    async fn read_rest(&mut self) -> io::Result<()> {
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
                let capacity = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                let mut chunk = Vec::with_capacity(capacity);
                let read = |pipe: &pipe::Receiver, chunk: &mut Vec<u8>| {
                    Ok(rustix::io::read(pipe, spare_capacity(chunk))?)
                };
                if !self.read_once(stream, &mut chunk, read).await? {
                    break;
                }
                left = left.saturating_sub(chunk.len() as u64);
            }
        }
        Ok(())
    }

    /// Reads a stream once, without waiting. Returns whether there may be more.
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
                capture.push(chunk).await;
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

/// The write end of standard input and the bytes to write, if any.
type PendingInput = Option<(OwnedFd, Vec<u8>)>;

/// Opens the standard input of a command.
fn open_stdin(stdin: Stdin) -> io::Result<(OwnedFd, PendingInput)> {
    match stdin {
        Stdin::Null => Ok((File::open("/dev/null")?.into(), None)),
        Stdin::Fd(fd) => Ok((fd, None)),
        Stdin::Bytes(bytes) if bytes.is_empty() => open_stdin(Stdin::Null),
        Stdin::Bytes(bytes) => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((theirs, Some((ours, bytes))))
        }
    }
}

/// Writes standard input and closes it. A process may stop reading before the end.
async fn write_all(input: PendingInput) -> io::Result<()> {
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
