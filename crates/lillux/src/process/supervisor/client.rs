//! The host's side: starts the fork server, assigns commands to reapers, receives events.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    send, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use super::super::image::Image;
use super::super::table;
use super::fork_server;
use super::messages::{Event, RunRequest};
use super::reaper::{KILL_INTERVAL, KILL_TIMEOUT};
use super::sys::{self, SignalReset};
use crate::time::Deadline;

/// Maximum number of idle reapers. Further ones are ended after their command.
const MAX_IDLE: usize = 64;

/// Allowance for late scheduling, added to the time that a reaper may take.
pub(in super::super) const MARGIN: Duration = Duration::from_secs(2);

/// Interval at which a fork server that should end is continued, in case a command stopped it.
const CONTINUE_INTERVAL: Duration = Duration::from_millis(100);

/// How long the fork server may take to fork a reaper. If it takes longer, it is replaced.
const FORK_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs commands, each as a process tree that ends as a whole. See the
/// [module](crate::process).
///
/// Starting a supervisor forks the process, so start it first in `main`: before threads,
/// before secrets are read, and while the process is small. The fork keeps a copy of the
/// memory of that moment, and commands run with its user, limits and umask, so drop
/// privileges before. Starting it later also works.
///
/// Clones share the same reapers. After the last clone is dropped and the last command has
/// ended, no helper process is left.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

struct Shared {
    /// Before `fork_server`: fields are dropped in order, and the reapers must see their
    /// sockets close before the fork server is waited for.
    idle: Mutex<Vec<IdleReaper>>,
    fork_server: Mutex<Option<ForkServer>>,
    /// The longest grace time of any command so far, in milliseconds.
    longest_grace: AtomicU64,
}

/// A reaper that waits for a command.
struct IdleReaper {
    socket: OwnedFd,
    identity: Identity,
}

/// The processes behind a reaper's socket.
#[derive(Clone, Copy)]
struct Identity {
    /// Pid and start time of the reaper, once [`Event::Ready`] was received.
    reaper: Option<(i32, u64)>,
    /// Pid of the fork server.
    fork_server: i32,
}

struct ForkServer {
    socket: OwnedFd,
    process: ForkedChild,
}

/// A child process that ends when its socket is closed. It must be waited for, or it stays a
/// zombie. That may take the grace time of a tree, so on drop a thread does it.
struct ForkedChild {
    pid: i32,
    process: Option<OwnedFd>,
}

impl ForkedChild {
    fn new(pid: i32) -> io::Result<Self> {
        let number = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let process = Some(pidfd_open(number, PidfdFlags::empty())?);
        Ok(Self { pid, process })
    }

    /// Waits until the process has ended. A command can stop it, so it is continued
    /// repeatedly, and after `timeout` it is killed with all its descendants.
    fn wait(mut self, timeout: Duration) {
        if let Some(process) = self.process.take() {
            wait_for(self.pid, &process, timeout);
        }
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        let pid = self.pid;
        if let Some(process) = self.process.take() {
            // If no thread can be started, the child stays a zombie until the host ends.
            let _ =
                std::thread::Builder::new().spawn(move || wait_for(pid, &process, Duration::MAX));
        }
    }
}

/// Waits for a child and reaps it, unless other code in this process has already reaped it.
fn wait_for(pid: i32, process: &OwnedFd, timeout: Duration) {
    let deadline = Deadline::after(Some(timeout));
    while !has_ended(process, CONTINUE_INTERVAL) {
        if deadline.has_passed() {
            kill_with_descendants(pid, process);
            break;
        }
        let _ = pidfd_send_signal(process, Signal::CONT);
    }
    let reaped = || waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    while matches!(reaped(), Err(rustix::io::Errno::INTR)) {}
}

/// Waits up to `time` for a process to end, and returns whether it has.
fn has_ended(process: &OwnedFd, time: Duration) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let time = Timespec::try_from(time).unwrap_or_default();
    poll(&mut watched, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// Kills a fork server that does not end, and all its descendants.
fn kill_with_descendants(pid: i32, process: &OwnedFd) {
    let deadline = Deadline::after(Some(KILL_TIMEOUT));
    while table::kill_descendants(pid) > 0 && !deadline.has_passed() {
        std::thread::sleep(KILL_INTERVAL);
    }
    let _ = pidfd_send_signal(process, Signal::KILL);
}

impl Supervisor {
    /// Forks the fork server. Commands run with default signal dispositions.
    pub fn start() -> io::Result<Self> {
        Self::with_signals(SignalReset::All)
    }

    /// Like [`start`](Self::start), for a program that runs one command and ends: the command
    /// inherits ignored signals, as under `nohup`.
    pub fn for_one_command() -> io::Result<Self> {
        Self::with_signals(SignalReset::Required)
    }

    fn with_signals(signals: SignalReset) -> io::Result<Self> {
        let (fork_server, first_reaper) = start_fork_server(signals)?;
        table::check()?;
        Ok(Self {
            shared: Arc::new(Shared {
                idle: Mutex::new(vec![first_reaper]),
                fork_server: Mutex::new(Some(fork_server)),
                longest_grace: AtomicU64::new(0),
            }),
        })
    }

    /// Ends the helper processes and waits for them, if this is the last clone and no command
    /// runs. Dropping does the same without waiting. Helpers that do not end within the
    /// longest grace time, because a command stops them, are killed.
    pub fn shut_down(self) {
        let Ok(shared) = Arc::try_unwrap(self.shared) else {
            return;
        };
        drop(shared.idle);
        let fork_server = shared.fork_server.into_inner();
        if let Some(ForkServer { socket, process }) = fork_server {
            drop(socket);
            let grace = Duration::from_millis(shared.longest_grace.into_inner());
            process.wait(grace.saturating_add(KILL_TIMEOUT + MARGIN));
        }
    }

    /// Sends a command to an idle reaper, or to a new one. If the future is dropped before the
    /// reaper has all of it, the command does not start.
    pub(in super::super) async fn run(
        &self,
        image: &Image,
        request: RunRequest,
        stdio: [OwnedFd; 3],
    ) -> Result<Job, ReaperError> {
        let grace = u64::try_from(request.grace.as_millis()).unwrap_or(u64::MAX);
        self.shared
            .longest_grace
            .fetch_max(grace, Ordering::Relaxed);
        let message = [request.to_bytes().as_slice(), image.block.as_slice()].concat();
        // Skip reapers that were killed while idle.
        while let Some(reaper) = self.pop_idle() {
            if let Ok(reaper) = send_request(reaper, &message, &stdio).await {
                return Ok(Job::new(self.clone(), reaper)?);
            }
        }
        let reaper = self.new_reaper().await?;
        let reaper = send_request(reaper, &message, &stdio).await?;
        Ok(Job::new(self.clone(), reaper)?)
    }

    /// Requests another reaper from the fork server, and starts a fork server if there is
    /// none or it does not answer. Waits for [`Event::Ready`], because a dying fork server
    /// still accepts the request.
    async fn new_reaper(&self) -> Result<IdleReaper, ReaperError> {
        let (ours, theirs) = socket_pair()?;
        let requested_from = match &*self.shared.fork_server.lock() {
            Some(server) if send_fd(&server.socket, &theirs).is_ok() => Some(server.process.pid),
            _ => None,
        };
        drop(theirs);
        if let Some(fork_server) = requested_from {
            let reaper = IdleReaper {
                socket: ours,
                identity: Identity {
                    reaper: None,
                    fork_server,
                },
            };
            let mut job = Job::new(self.clone(), reaper)?;
            if let Ok(Ok(_)) = timeout(FORK_TIMEOUT, job.next_event()).await {
                return Ok(job.into_idle()?);
            }
            // If it was only stopped, it can end now.
            job.continue_helpers();
        }
        let (successor, reaper) = start_fork_server(SignalReset::All)?;
        *self.shared.fork_server.lock() = Some(successor);
        Ok(reaper)
    }

    fn pop_idle(&self) -> Option<IdleReaper> {
        self.shared.idle.lock().pop()
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// The connection to a reaper failed. Its tree has been, or is being, killed.
#[derive(Debug, thiserror::Error)]
#[error("the process that supervised the command is gone: {0}")]
pub(in super::super) struct ReaperError(#[from] io::Error);

/// A command that a reaper runs. Dropping it ends the tree.
pub(in super::super) struct Job {
    supervisor: Supervisor,
    /// Registered for reading only: a `UnixStream` would also wake the runtime each time the
    /// reaper reads.
    socket: pipe::Receiver,
    identity: Identity,
    inbox: Inbox,
}

/// Buffer for an event that has arrived in part.
#[derive(Default)]
struct Inbox {
    bytes: [u8; Event::SIZE],
    filled: usize,
}

impl Job {
    fn new(supervisor: Supervisor, reaper: IdleReaper) -> io::Result<Self> {
        Ok(Self {
            supervisor,
            socket: pipe::Receiver::from_owned_fd_unchecked(reaper.socket)?,
            identity: reaper.identity,
            inbox: Inbox::default(),
        })
    }

    /// Receives the next event about the command. Cancel safe.
    pub(in super::super) async fn event(&mut self) -> Result<Event, ReaperError> {
        loop {
            match self.next_event().await? {
                Event::Ready { .. } => {}
                event => return Ok(event),
            }
        }
    }

    async fn next_event(&mut self) -> Result<Event, ReaperError> {
        let Self { socket, inbox, .. } = self;
        while inbox.filled < Event::SIZE {
            socket.readable().await?;
            match socket.try_read(&mut inbox.bytes[inbox.filled..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(received) => inbox.filled += received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        inbox.filled = 0;
        let event = Event::from_bytes(inbox.bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        if let Event::Ready { pid, start_time } = event {
            self.identity.reaper = Some((pid, start_time));
        }
        Ok(event)
    }

    /// Continues the fork server and the reaper, which the command may have stopped.
    pub(in super::super) fn continue_helpers(&self) {
        let me = getpid().as_raw_nonzero().get();
        let Identity {
            reaper,
            fork_server,
        } = self.identity;
        if let Some((reaper, start_time)) = reaper {
            table::signal_one(Signal::CONT, reaper, |stat| stat.start_time == start_time);
        }
        table::signal_one(Signal::CONT, fork_server, |stat| stat.parent == me);
    }

    /// Kills a tree whose reaper does not answer: first the descendants, which stay below the
    /// reaper even if it is stopped, then the reaper.
    pub(in super::super) async fn kill_tree(&self) {
        let Some((reaper, start_time)) = self.identity.reaper else {
            return;
        };
        let is_reaper = |stat: &table::Stat| stat.start_time == start_time;
        let deadline = Deadline::after(Some(KILL_TIMEOUT));
        let exists = || table::stat(reaper).is_ok_and(|it| it.as_ref().is_some_and(is_reaper));
        while exists() && table::kill_descendants(reaper) > 0 && !deadline.has_passed() {
            sleep(KILL_INTERVAL).await;
        }
        table::signal_one(Signal::KILL, reaper, is_reaper);
        self.continue_helpers();
    }

    fn into_idle(self) -> io::Result<IdleReaper> {
        Ok(IdleReaper {
            socket: self.socket.into_nonblocking_fd()?,
            identity: self.identity,
        })
    }

    /// Returns the reaper to the pool of idle ones.
    pub(in super::super) fn release(self) {
        let supervisor = self.supervisor.clone();
        if let Ok(reaper) = self.into_idle() {
            let mut idle = supervisor.shared.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(reaper);
            }
        }
    }
}

/// Sends the beginning of a message together with the standard streams. The socket of an idle
/// reaper is empty, so it accepts at least a part.
fn send_first(reaper: &OwnedFd, message: &[u8], stdio: &[OwnedFd; 3]) -> io::Result<usize> {
    let stdio = stdio.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&stdio));
    let data = [IoSlice::new(message)];
    Ok(sendmsg(reaper, &data, &mut control, SendFlags::NOSIGNAL)?)
}

/// Sends a message and the standard streams; waits while the socket buffer is full.
async fn send_request(
    reaper: IdleReaper,
    message: &[u8],
    stdio: &[OwnedFd; 3],
) -> io::Result<IdleReaper> {
    let mut rest = &message[send_first(&reaper.socket, message, stdio)?..];
    if rest.is_empty() {
        return Ok(reaper);
    }
    let stream = UnixStream::from_std(reaper.socket.into())?;
    while !rest.is_empty() {
        let send = || Ok(send(&stream, rest, SendFlags::NOSIGNAL)?);
        let sent = stream.async_io(Interest::WRITABLE, send).await?;
        rest = &rest[sent..];
    }
    Ok(IdleReaper {
        socket: stream.into_std()?.into(),
        identity: reaper.identity,
    })
}

/// Forks a fork server, which forks a first reaper without a request.
fn start_fork_server(signals: SignalReset) -> io::Result<(ForkServer, IdleReaper)> {
    let (socket, its_socket) = socket_pair()?;
    let (reaper, its_reaper) = socket_pair()?;
    let host = pidfd_open(getpid(), PidfdFlags::empty())?;
    let pid = sys::fork_child(|| {
        fork_server::run(its_socket, its_reaper, host, signals);
        true
    })?;
    let process = ForkedChild::new(pid)?;
    let reaper = IdleReaper {
        socket: reaper,
        identity: Identity {
            reaper: None,
            fork_server: pid,
        },
    };
    Ok((ForkServer { socket, process }, reaper))
}

/// A connected socket pair; the first end, for the host, is non-blocking.
fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

fn send_fd(to: &OwnedFd, fd: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
