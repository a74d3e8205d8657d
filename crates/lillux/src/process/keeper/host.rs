//! The program's side: starting the warden, borrowing keepers, talking to them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::ioctl_fionbio;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    send, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::super::image::Image;
use super::keep;
use super::sys;
use super::warden;
use super::wire::{Event, Run};

/// How many keepers wait for another command. More are ended when their command has.
const MAX_IDLE: usize = 64;

/// Runs commands, each as a tree that ends as one. See the [module](crate::process).
///
/// Starting it forks the process. So start it first thing in `main`: before
/// threads, before secrets are read, while the program is small. What is forked
/// off keeps a copy of the memory of that moment. A program that starts it
/// later works as well.
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
    idle: Mutex<Vec<OwnedFd>>,
    warden: Mutex<Option<Warden>>,
    _lone_keeper: Option<Forked>,
}

struct Warden {
    socket: OwnedFd,
    _process: Forked,
}

/// A child of ours that ends by itself once its socket is closed. Somebody has
/// to wait for it, or it stays as a zombie; that may take a tree's grace, so
/// it is a thread's task.
struct Forked(i32);

impl Drop for Forked {
    fn drop(&mut self) {
        let pid = self.0;
        // Without a thread it stays a zombie until the program ends: no reason to fail.
        let _ = std::thread::Builder::new().spawn(move || sys::reap(pid));
    }
}

impl Supervisor {
    /// Forks off the process that all commands will hang from.
    pub fn start() -> io::Result<Self> {
        let (warden, first_keeper) = start_warden()?;
        Self::new(first_keeper, Some(warden), None)
    }

    /// For a program that runs one command and ends: it forks once where
    /// [`Supervisor::start`] forks twice. The price is that a command whose
    /// keeper is killed, by name or by the kernel for want of memory, is
    /// killed alone, without its descendants.
    pub fn for_one_command() -> io::Result<Self> {
        let (socket, its_socket) = pair()?;
        let pid = sys::fork_off(|| {
            if sys::leave_program().is_ok() {
                sys::yield_to_others();
                keep::run(its_socket);
            }
        })?;
        Self::new(socket, None, Some(Forked(pid)))
    }

    fn new(
        first_keeper: OwnedFd,
        warden: Option<Warden>,
        lone_keeper: Option<Forked>,
    ) -> io::Result<Self> {
        // Without it, keepers see no tree to end, and have nobody to tell.
        if access("/proc/self/stat", Access::READ_OK).is_err() {
            return Err(io::Error::other("cannot read /proc: is it mounted?"));
        }
        Ok(Self {
            shared: Arc::new(Shared {
                idle: Mutex::new(vec![first_keeper]),
                warden: Mutex::new(warden),
                _lone_keeper: lone_keeper,
            }),
        })
    }

    /// Hands a command to an idle keeper, if there is one, as far as its socket
    /// takes it at once.
    pub(in super::super) fn order(
        &self,
        image: &Image,
        stdio: [OwnedFd; 3],
        grace: Duration,
        announce: bool,
    ) -> Order {
        let message = message(image, grace, announce);
        // One may have been killed while nobody looked.
        let taken = std::iter::from_fn(|| self.take_idle()).find_map(|keeper| {
            let sent = send_first(&keeper, &message, &stdio).ok()?;
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
    async fn new_keeper(&self) -> Result<OwnedFd, KeeperError> {
        let (ours, theirs) = pair()?;
        let asked = match &*lock(&self.shared.warden) {
            Some(warden) => pass(&warden.socket, &theirs).is_ok(),
            None => false,
        };
        drop(theirs);
        let mut job = Job::new(self.clone(), ours)?;
        if asked && job.next_event().await.is_ok() {
            return Ok(job.into_socket()?);
        }
        let (successor, keeper) = start_warden()?;
        *lock(&self.shared.warden) = Some(successor);
        Ok(keeper)
    }

    fn take_idle(&self) -> Option<OwnedFd> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
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
    taken: Option<(OwnedFd, usize)>,
}

impl Order {
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
        let sent = send_first(&keeper, &message, &stdio)?;
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
    inbox: Inbox,
}

/// An event that has arrived in part.
#[derive(Default)]
struct Inbox {
    bytes: [u8; Event::SIZE],
    filled: usize,
}

impl Job {
    fn new(supervisor: Supervisor, socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            supervisor,
            socket: pipe::Receiver::from_owned_fd_unchecked(socket)?,
            inbox: Inbox::default(),
        })
    }

    /// The next thing the keeper has to tell of its command. May be dropped and called again.
    pub(in super::super) async fn event(&mut self) -> Result<Event, KeeperError> {
        loop {
            match self.next_event().await? {
                Event::Ready => {}
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
        Event::from_bytes(inbox.bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
    }

    /// Asks the keeper to end the tree. The keeper is not used again after that:
    /// the request may reach it when it has nothing left to end.
    pub(in super::super) fn end(&self, grace: Duration) -> Result<(), KeeperError> {
        let grace = milliseconds(grace).to_ne_bytes();
        send(&self.socket, &grace, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
        Ok(())
    }

    fn into_socket(self) -> io::Result<OwnedFd> {
        self.socket.into_nonblocking_fd()
    }

    /// Gives the keeper back, for another command.
    pub(in super::super) fn release(self) {
        let supervisor = self.supervisor.clone();
        if let Ok(socket) = self.into_socket() {
            let mut idle = supervisor.idle();
            if idle.len() < MAX_IDLE {
                idle.push(socket);
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
async fn send_rest(socket: OwnedFd, mut rest: &[u8]) -> io::Result<OwnedFd> {
    if rest.is_empty() {
        return Ok(socket);
    }
    let stream = UnixStream::from_std(socket.into())?;
    while !rest.is_empty() {
        let send = || Ok(send(&stream, rest, SendFlags::NOSIGNAL)?);
        let sent = stream.async_io(Interest::WRITABLE, send).await?;
        rest = &rest[sent..];
    }
    Ok(stream.into_std()?.into())
}

fn message(image: &Image, grace: Duration, announce: bool) -> Vec<u8> {
    let run = Run {
        // `Image::build` has seen to it that this fits.
        block: u32::try_from(image.block.len()).unwrap_or(u32::MAX),
        argc: image.argc,
        envc: image.envc,
        grace_ms: milliseconds(grace),
        announce,
    };
    [run.to_bytes().as_slice(), image.block.as_slice()].concat()
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// A warden, and a first keeper that it forks without being asked.
fn start_warden() -> io::Result<(Warden, OwnedFd)> {
    let (socket, its_socket) = pair()?;
    let (keeper, its_keeper) = pair()?;
    let pid = sys::fork_off(|| warden::run(its_socket, its_keeper))?;
    let warden = Warden {
        socket,
        _process: Forked(pid),
    };
    Ok((warden, keeper))
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
