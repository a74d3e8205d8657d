//! The program's side: starting the warden, borrowing keepers, talking to them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    send, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, pidfd_open,
    set_child_subreaper, wait, waitid,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use super::super::image::Image;
use super::super::table;
use super::keep::{self, GIVE_UP, Service};
use super::sys::{self, Reset};
use super::warden;
use super::wire::{Event, Run};
use crate::time::Deadline;

/// How many keepers wait for another command. More are ended when their command has.
const MAX_IDLE: usize = 64;

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
    lone_keeper: Mutex<Option<Forked>>,
}

/// A keeper that waits for a command.
struct Keeper {
    socket: OwnedFd,
    identity: Identity,
}

/// Which process a keeper is, as far as we have heard.
#[derive(Clone, Copy)]
struct Identity {
    pid: Option<i32>,
    /// The warden, or this program.
    parent: i32,
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

    fn wait(mut self) {
        self.process.as_ref().map(wait_for);
        self.process = None;
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // Without a thread it stays a zombie until the program ends: no reason to fail.
            let _ = std::thread::Builder::new().spawn(move || wait_for(&process));
        }
    }
}

/// If somebody else in this program has reaped it already, that is as good.
fn wait_for(process: &OwnedFd) {
    let ended = || waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    while matches!(ended(), Err(rustix::io::Errno::INTR)) {}
}

impl Supervisor {
    /// Forks off the process that all commands will hang from.
    pub fn start() -> io::Result<Self> {
        let (warden, first_keeper) = start_warden()?;
        Self::new(first_keeper, Some(warden), None)
    }

    /// For a program that runs one command and ends: it forks once where
    /// [`Supervisor::start`] forks twice. The program itself is then what
    /// stands behind the keeper: should that be killed, what it kept falls to
    /// the program, which ends everything below it. So it is for a program
    /// that has no other children. Should both be killed at once, what had
    /// left the command stays.
    pub fn for_one_command() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let (socket, its_socket) = pair()?;
        let program = pidfd_open(getpid(), PidfdFlags::empty())?;
        let pid = sys::fork_off(|| match sys::keep_only([its_socket, program]) {
            Ok([socket, program]) if sys::leave_program(Reset::Needed).is_ok() => {
                keep::run(socket, program, Service::One)
            }
            _ => true,
        })?;
        let identity = Identity {
            pid: Some(pid),
            parent: getpid().as_raw_nonzero().get(),
        };
        Self::new(Keeper { socket, identity }, None, Some(Forked::new(pid)?))
    }

    fn new(
        first_keeper: Keeper,
        warden: Option<Warden>,
        lone_keeper: Option<Forked>,
    ) -> io::Result<Self> {
        table::check()?;
        Ok(Self {
            shared: Arc::new(Shared {
                idle: Mutex::new(vec![first_keeper]),
                warden: Mutex::new(warden),
                lone_keeper: Mutex::new(lone_keeper),
            }),
        })
    }

    /// Ends what was forked off and waits for it, if this is the last clone
    /// and no command runs. Dropping does the same without waiting.
    pub fn shut_down(self) {
        let Ok(shared) = Arc::try_unwrap(self.shared) else {
            return;
        };
        drop(shared.idle);
        let warden = shared.warden.into_inner().unwrap_or_default();
        if let Some(Warden { socket, process }) = warden {
            drop(socket);
            process.wait();
        }
        let lone_keeper = shared.lone_keeper.into_inner().unwrap_or_default();
        if let Some(process) = lone_keeper {
            process.wait();
        }
    }

    /// Hands a command to an idle keeper, if there is one, as far as its socket
    /// takes it at once.
    pub(in super::super) fn order(&self, image: &Image, run: Run, stdio: [OwnedFd; 3]) -> Order {
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
        if let Some(parent) = asked {
            let identity = Identity { pid: None, parent };
            let keeper = Keeper {
                socket: ours,
                identity,
            };
            let mut job = Job::new(self.clone(), keeper)?;
            if let Ok(Ok(_)) = timeout(PATIENCE, job.next_event()).await {
                return Ok(job.into_keeper()?);
            }
            // Should it only have been stopped, it can end now.
            if let Some(warden) = Pid::from_raw(parent) {
                let _ = kill_process(warden, Signal::CONT);
            }
        }
        let (successor, keeper) = start_warden()?;
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
        if let Event::Ready { pid } = event {
            self.identity.pid = Some(pid);
        }
        Ok(event)
    }

    /// Kills a keeper that does not answer. Its command dies with it; the rest
    /// of the tree falls to the warden, or to us.
    pub(in super::super) fn kill_keeper(&self) {
        self.signal_keeper(Signal::KILL);
    }

    /// Wakes a keeper that has been stopped, unless that is the warden's task.
    pub(in super::super) fn wake_keeper(&self) {
        if self.is_ours() {
            self.signal_keeper(Signal::CONT);
        }
    }

    fn signal_keeper(&self, signal: Signal) {
        let Identity { pid, parent } = self.identity;
        // A number that is another's by now has another parent.
        if let Some(pid) = pid
            && let Ok(Some(stat)) = table::stat(pid)
            && stat.parent == parent
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether the keeper is a child of this program, not of a warden.
    fn is_ours(&self) -> bool {
        self.identity.parent == getpid().as_raw_nonzero().get()
    }

    /// After the loss of its keeper: ends what has fallen to this program, if
    /// that is where it falls.
    pub(in super::super) async fn sweep(&self) {
        if !self.is_ours() {
            return;
        }
        let me = getpid().as_raw_nonzero().get();
        let deadline = Deadline::after(Some(GIVE_UP));
        while table::signal(Signal::KILL, |pid| table::is_descendant(pid, me)) > 0
            && !deadline.has_passed()
        {
            // Those that have ended are ours to reap.
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn into_keeper(self) -> io::Result<Keeper> {
        Ok(Keeper {
            socket: self.socket.into_nonblocking_fd()?,
            identity: self.identity,
        })
    }

    /// Gives the keeper back, for another command. One of ours is for one
    /// only: it may still be there to take the next, and end without it.
    pub(in super::super) fn release(self) {
        if self.is_ours() {
            return;
        }
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
fn start_warden() -> io::Result<(Warden, Keeper)> {
    let (socket, its_socket) = pair()?;
    let (keeper, its_keeper) = pair()?;
    let program = pidfd_open(getpid(), PidfdFlags::empty())?;
    let pid = sys::fork_off(|| {
        warden::run(its_socket, its_keeper, program);
        true
    })?;
    let process = Forked::new(pid)?;
    let keeper = Keeper {
        socket: keeper,
        identity: Identity {
            pid: None,
            parent: pid,
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
