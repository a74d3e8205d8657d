//! The program's side: starting the warden, borrowing keepers, talking to them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
use super::keep::{GIVE_UP, KILL_AGAIN};
use super::sys::{self, Reset};
use super::warden;
use super::wire::{Event, Run};
use crate::time::Deadline;

/// How many keepers wait for another command. More are ended when their command has.
const MAX_IDLE: usize = 64;

/// What is added to the time that a keeper may take, for being scheduled late.
pub(in super::super) const MARGIN: Duration = Duration::from_secs(2);

/// How often a warden that has not ended yet is continued: its command may have stopped it.
const WAKE_AGAIN: Duration = Duration::from_millis(100);

/// A warden that takes longer to fork a keeper has been stopped, or worse.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs commands, each as a tree that ends as one. See the [module](crate::process).
///
/// Starting it forks the process. So start it first thing in `main`: before
/// threads, before secrets are read, while the program is small. What is forked
/// off keeps a copy of the memory of that moment, and commands run with its
/// user, limits and umask: a program that gives up privileges does so before.
/// A program that starts it later works as well.
///
/// Clones share the same keepers. When the last one is dropped and the last
/// command has ended, nothing is left behind.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

struct Shared {
    /// Sockets first: they are dropped in this order, and what hangs from
    /// them must see them close before it is waited for.
    idle: Mutex<Vec<Keeper>>,
    warden: Mutex<Option<Warden>>,
    /// The longest time, in milliseconds, that a command may take to end.
    longest_grace: AtomicU64,
}

/// A keeper that waits for a command.
struct Keeper {
    socket: OwnedFd,
    identity: Identity,
}

/// Which process a keeper is, as far as we have heard.
#[derive(Clone, Copy)]
struct Identity {
    /// The keeper's number and start time, which together no other process has.
    keeper: Option<(i32, u64)>,
    warden: i32,
}

struct Warden {
    socket: OwnedFd,
    process: Forked,
}

/// A child of ours that ends by itself once its socket is closed. Somebody has
/// to wait for it, or it stays as a zombie; that may take a tree's grace, so
/// it is a thread's task unless the program has nothing else to do.
struct Forked {
    pid: i32,
    process: Option<OwnedFd>,
}

impl Forked {
    fn new(pid: i32) -> io::Result<Self> {
        let number = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let process = Some(pidfd_open(number, PidfdFlags::empty())?);
        Ok(Self { pid, process })
    }

    /// Waits until the process has ended. A command can stop it, so it is continued again
    /// and again, and after `patience` killed with all that is below it.
    fn wait(mut self, patience: Duration) {
        if let Some(process) = self.process.take() {
            wait_for(self.pid, &process, patience);
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let pid = self.pid;
        if let Some(process) = self.process.take() {
            // Without a thread it stays a zombie until the program ends: no reason to fail.
            let _ =
                std::thread::Builder::new().spawn(move || wait_for(pid, &process, Duration::MAX));
        }
    }
}

/// Waits for a child and reaps it. If somebody else in this program has reaped it already,
/// that is as good.
fn wait_for(pid: i32, process: &OwnedFd, patience: Duration) {
    let deadline = Deadline::after(Some(patience));
    while !has_ended(process, WAKE_AGAIN) {
        if deadline.has_passed() {
            end_by_force(pid, process);
            break;
        }
        let _ = pidfd_send_signal(process, Signal::CONT);
    }
    let reaped = || waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    while matches!(reaped(), Err(rustix::io::Errno::INTR)) {}
}

/// Waits for the end of a process, at most for `time`.
fn has_ended(process: &OwnedFd, time: Duration) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let time = Timespec::try_from(time).unwrap_or_default();
    poll(&mut watched, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// Kills a warden that does not end, and everything below it, without its help.
fn end_by_force(pid: i32, process: &OwnedFd) {
    let deadline = Deadline::after(Some(GIVE_UP));
    while table::kill_below(pid) > 0 && !deadline.has_passed() {
        std::thread::sleep(KILL_AGAIN);
    }
    let _ = pidfd_send_signal(process, Signal::KILL);
}

impl Supervisor {
    /// Forks off the process that all commands will hang from.
    pub fn start() -> io::Result<Self> {
        Self::with_signals(Reset::All)
    }

    /// For a program that runs one command and ends: signals that it ignores, as below
    /// `nohup`, its command ignores too.
    pub fn for_one_command() -> io::Result<Self> {
        Self::with_signals(Reset::Needed)
    }

    fn with_signals(signals: Reset) -> io::Result<Self> {
        let (warden, first_keeper) = start_warden(signals)?;
        table::check()?;
        Ok(Self {
            shared: Arc::new(Shared {
                idle: Mutex::new(vec![first_keeper]),
                warden: Mutex::new(Some(warden)),
                longest_grace: AtomicU64::new(0),
            }),
        })
    }

    /// Ends what was forked off and waits for it, if this is the last clone
    /// and no command runs. Dropping does the same without waiting. What does not end in
    /// the time that its commands have for it, because one of them stops it, is killed.
    pub fn shut_down(self) {
        let Ok(shared) = Arc::try_unwrap(self.shared) else {
            return;
        };
        drop(shared.idle);
        let warden = shared.warden.into_inner().unwrap_or_default();
        if let Some(Warden { socket, process }) = warden {
            drop(socket);
            let grace = Duration::from_millis(shared.longest_grace.into_inner());
            process.wait(grace.saturating_add(GIVE_UP + MARGIN));
        }
    }

    /// Hands a command to an idle keeper, if there is one, as far as its socket
    /// takes it at once.
    pub(in super::super) fn order(&self, image: &Image, run: Run, stdio: [OwnedFd; 3]) -> Order {
        let grace = u64::try_from(run.grace.as_millis()).unwrap_or(u64::MAX);
        self.shared
            .longest_grace
            .fetch_max(grace, Ordering::Relaxed);
        let message = [run.to_bytes().as_slice(), image.block.as_slice()].concat();
        // One may have been killed while nobody looked.
        let taken = std::iter::from_fn(|| self.take_idle()).find_map(|keeper| {
            let sent = send_first(&keeper.socket, &message, &stdio).ok()?;
            Some((keeper, sent))
        });
        Order {
            supervisor: self.clone(),
            message,
            stdio,
            taken,
        }
    }

    /// Asks the warden for one more keeper, and starts a warden if there is
    /// none or it is gone. One that is just dying still takes the request, so
    /// the keeper is heard of before anything is entrusted to it.
    async fn new_keeper(&self) -> Result<Keeper, KeeperError> {
        let (ours, theirs) = pair()?;
        let asked = match &*lock(&self.shared.warden) {
            Some(warden) if pass(&warden.socket, &theirs).is_ok() => Some(warden.process.pid),
            _ => None,
        };
        drop(theirs);
        if let Some(warden) = asked {
            let keeper = None;
            let identity = Identity { keeper, warden };
            let keeper = Keeper {
                socket: ours,
                identity,
            };
            let mut job = Job::new(self.clone(), keeper)?;
            if let Ok(Ok(_)) = timeout(PATIENCE, job.next_event()).await {
                return Ok(job.into_keeper()?);
            }
            // Should it only have been stopped, it can end now.
            job.wake();
        }
        let (successor, keeper) = start_warden(Reset::All)?;
        *lock(&self.shared.warden) = Some(successor);
        Ok(keeper)
    }

    fn take_idle(&self) -> Option<Keeper> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Keeper>> {
        lock(&self.shared.idle)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// A command on its way to a keeper. Dropped, it is called off: a keeper that
/// has heard all of it ends it, one that has heard a part has not begun.
pub(in super::super) struct Order {
    supervisor: Supervisor,
    message: Vec<u8>,
    stdio: [OwnedFd; 3],
    /// The keeper that took it, and how much of the message it was sent.
    taken: Option<(Keeper, usize)>,
}

impl Order {
    /// Blocks until the keeper that took it has something to tell.
    pub(in super::super) fn wait(&self, time: Duration) {
        if let Some((keeper, _)) = &self.taken {
            let mut watched = [PollFd::new(&keeper.socket, PollFlags::IN)];
            let time = Timespec::try_from(time).unwrap_or_default();
            let _ = poll(&mut watched, Some(&time));
        }
    }

    /// Sees to it that a keeper has all of it.
    pub(in super::super) async fn job(self) -> Result<Job, KeeperError> {
        let Self {
            supervisor,
            message,
            stdio,
            taken,
        } = self;
        if let Some((keeper, sent)) = taken
            && let Ok(keeper) = send_rest(keeper, &message[sent..]).await
        {
            return Ok(Job::new(supervisor, keeper)?);
        }
        let keeper = supervisor.new_keeper().await?;
        let sent = send_first(&keeper.socket, &message, &stdio)?;
        let keeper = send_rest(keeper, &message[sent..]).await?;
        Ok(Job::new(supervisor, keeper)?)
    }
}

/// The conversation with a keeper broke off. What it kept has been, or is being, killed.
#[derive(Debug, thiserror::Error)]
#[error("the process that kept the command is gone: {0}")]
pub(in super::super) struct KeeperError(#[from] io::Error);

/// A command in a keeper's hands. Dropping it ends the tree.
pub(in super::super) struct Job {
    supervisor: Supervisor,
    /// Only listened to: with a stream, the runtime would also be woken each
    /// time the keeper has read something.
    socket: pipe::Receiver,
    identity: Identity,
    inbox: Inbox,
}

/// An event that has arrived in part.
#[derive(Default)]
struct Inbox {
    bytes: [u8; Event::SIZE],
    filled: usize,
}

impl Job {
    fn new(supervisor: Supervisor, keeper: Keeper) -> io::Result<Self> {
        Ok(Self {
            supervisor,
            socket: pipe::Receiver::from_owned_fd_unchecked(keeper.socket)?,
            identity: keeper.identity,
            inbox: Inbox::default(),
        })
    }

    /// The next thing the keeper has to tell of its command. May be dropped and called again.
    pub(in super::super) async fn event(&mut self) -> Result<Event, KeeperError> {
        loop {
            match self.next_event().await? {
                Event::Ready { .. } => {}
                event => return Ok(event),
            }
        }
    }

    async fn next_event(&mut self) -> Result<Event, KeeperError> {
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
            self.identity.keeper = Some((pid, start_time));
        }
        Ok(event)
    }

    /// Continues the warden and the keeper, which the command may have stopped.
    pub(in super::super) fn wake(&self) {
        let me = getpid().as_raw_nonzero().get();
        let Identity { keeper, warden } = self.identity;
        if let Some((keeper, start_time)) = keeper {
            table::signal_one(Signal::CONT, keeper, |stat| stat.start_time == start_time);
        }
        table::signal_one(Signal::CONT, warden, |stat| stat.parent == me);
    }

    /// Ends a tree whose keeper does not answer, without the keeper's help: first what is
    /// below it, which it holds together even if it is stopped, then the keeper.
    pub(in super::super) async fn end_by_force(&self) {
        let Some((keeper, start_time)) = self.identity.keeper else {
            return;
        };
        let is_it = |stat: &table::Stat| stat.start_time == start_time;
        let deadline = Deadline::after(Some(GIVE_UP));
        let is_there = || table::stat(keeper).is_ok_and(|stat| stat.as_ref().is_some_and(is_it));
        while is_there() && table::kill_below(keeper) > 0 && !deadline.has_passed() {
            sleep(KILL_AGAIN).await;
        }
        table::signal_one(Signal::KILL, keeper, is_it);
        self.wake();
    }

    fn into_keeper(self) -> io::Result<Keeper> {
        Ok(Keeper {
            socket: self.socket.into_nonblocking_fd()?,
            identity: self.identity,
        })
    }

    /// Gives the keeper back, for another command.
    pub(in super::super) fn release(self) {
        let supervisor = self.supervisor.clone();
        if let Ok(keeper) = self.into_keeper() {
            let mut idle = supervisor.idle();
            if idle.len() < MAX_IDLE {
                idle.push(keeper);
            }
        }
    }
}

/// Sends the beginning of a message, and the standard streams with it. Nothing
/// is on its way to an idle keeper, so there is always room for some of it.
fn send_first(keeper: &OwnedFd, message: &[u8], stdio: &[OwnedFd; 3]) -> io::Result<usize> {
    let stdio = stdio.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&stdio));
    let data = [IoSlice::new(message)];
    Ok(sendmsg(keeper, &data, &mut control, SendFlags::NOSIGNAL)?)
}

/// Sends the rest of a message that did not fit into the socket at once.
async fn send_rest(keeper: Keeper, mut rest: &[u8]) -> io::Result<Keeper> {
    if rest.is_empty() {
        return Ok(keeper);
    }
    let stream = UnixStream::from_std(keeper.socket.into())?;
    while !rest.is_empty() {
        let send = || Ok(send(&stream, rest, SendFlags::NOSIGNAL)?);
        let sent = stream.async_io(Interest::WRITABLE, send).await?;
        rest = &rest[sent..];
    }
    Ok(Keeper {
        socket: stream.into_std()?.into(),
        identity: keeper.identity,
    })
}

/// A warden, and a first keeper that it forks without being asked.
fn start_warden(signals: Reset) -> io::Result<(Warden, Keeper)> {
    let (socket, its_socket) = pair()?;
    let (keeper, its_keeper) = pair()?;
    let program = pidfd_open(getpid(), PidfdFlags::empty())?;
    let pid = sys::fork_off(|| {
        warden::run(its_socket, its_keeper, program, signals);
        true
    })?;
    let process = Forked::new(pid)?;
    let keeper = Keeper {
        socket: keeper,
        identity: Identity {
            keeper: None,
            warden: pid,
        },
    };
    Ok((Warden { socket, process }, keeper))
}

/// A connected pair: ours does not block, theirs does.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

fn pass(to: &OwnedFd, fd: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A panic elsewhere leaves a list of sockets as good as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
