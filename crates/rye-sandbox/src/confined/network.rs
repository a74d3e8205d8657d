//! The network of a command in the tier `full`: the egress proxy, which listens in the network
//! namespace of the command.
//!
//! A socket belongs to the namespace in which it was created. The launcher creates the listening
//! socket in the new namespace and sends it here, so this process accepts the connections itself,
//! and nothing inside has to forward them.

use std::fmt;
use std::fs::Permissions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rye_engine::sandbox::ExecObserver;
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::launcher::PROXY_PORT;
use crate::egress::{ConnectionRequest, EgressProxy, EgressSetup};

/// The proxy of a running command.
pub(super) struct CommandNetwork {
    /// Has the socket to which the launcher sends its listener. Only the user can enter it.
    dir: TempDir,
    proxy: Arc<EgressProxy>,
    requests: mpsc::Receiver<ConnectionRequest>,
    /// Ends with this structure.
    _serving: JoinSet<()>,
}

impl fmt::Debug for CommandNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandNetwork")
    }
}

impl CommandNetwork {
    /// Starts the proxy. `can_ask` says whether the observer of the command can be asked.
    pub(super) fn start(setup: EgressSetup, can_ask: bool) -> io::Result<Self> {
        let private = Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new()
            .prefix("rye-")
            .permissions(private)
            .tempdir()?;
        let socket = UnixListener::bind(socket_in(&dir))?;
        let (sender, requests) = mpsc::channel(1);
        let proxy = EgressProxy::new(setup, can_ask.then_some(sender));
        let mut serving = JoinSet::new();
        let proxy_of_task = Arc::clone(&proxy);
        serving.spawn(async move {
            // Fails if the launcher did, which reports why.
            if let Ok(listener) = receive_listener(&socket).await {
                proxy_of_task.serve(listener).await;
            }
        });
        Ok(Self {
            dir,
            proxy,
            requests,
            _serving: serving,
        })
    }

    /// Path of the socket to which the launcher sends its listener.
    pub(super) fn socket(&self) -> PathBuf {
        socket_in(&self.dir)
    }

    /// Waits for a command, and meanwhile asks its observer about connections.
    pub(super) async fn run<T>(
        &mut self,
        command: impl Future<Output = T>,
        observer: &dyn ExecObserver,
    ) -> T {
        let mut command = pin!(command);
        loop {
            let request = tokio::select! {
                output = &mut command => return output,
                Some(request) = self.requests.recv() => request,
            };
            tokio::select! {
                output = &mut command => return output,
                is_approved = observer.approve_connection(&request.target) => {
                    let _ = request.reply.send(is_approved);
                }
            }
        }
    }

    /// The connections that were refused, each with the reason.
    pub(super) fn refused(&self) -> Vec<String> {
        self.proxy.refused()
    }
}

fn socket_in(dir: &TempDir) -> PathBuf {
    dir.path().join("egress")
}

/// Variables with which programs find the proxy.
pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let local = "localhost,127.0.0.1,::1".to_owned();
    let both_cases = |(name, value): (&str, String)| {
        let lower = name.to_lowercase();
        [(name.to_owned(), value.clone()), (lower, value)]
    };
    let all = [
        ("HTTP_PROXY", proxy.clone()),
        ("HTTPS_PROXY", proxy.clone()),
        ("ALL_PROXY", proxy),
        ("NO_PROXY", local),
    ];
    let for_node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    all.into_iter().flat_map(both_cases).chain([for_node])
}

/// Receives the listening socket from the launcher.
async fn receive_listener(socket: &UnixListener) -> io::Result<TcpListener> {
    let (launcher, _) = socket.accept().await?;
    let receive = || receive_fd(&launcher);
    let fd = launcher.async_io(Interest::READABLE, receive).await?;
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn receive_fd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut messages = control.drain();
    let fd = messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
