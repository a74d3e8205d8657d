//! Serves one client over standard input and output.

mod lines;

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;

use rmcp::service::ServerInitializeError;
use rmcp::{ServerHandler, ServiceExt};
use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use lines::LineTransport;

/// Serves one client until it closes its end or `stop` is cancelled.
///
/// Responses that are ready by then are still written. After the client closes its end, calls in
/// progress have five seconds to finish, because the client may still read.
pub async fn serve_stdio<H: ServerHandler>(handler: H, stop: CancellationToken) -> io::Result<()> {
    let transport = LineTransport::new(input()?, output()?);
    let running = handler.serve_with_ct(transport, stop).await;
    match running {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        // A client that disconnects before the handshake is not an error.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

type Input = Pin<Box<dyn AsyncRead + Send>>;
type Output = Pin<Box<dyn AsyncWrite + Send>>;

/// Opens standard input. The runtime polls pipes and sockets directly; anything else, such as a
/// terminal, is read by a thread, which costs about ten microseconds per message.
fn input() -> io::Result<Input> {
    let stdin = io::stdin();
    let copy = stdin.as_fd().try_clone_to_owned()?;
    Ok(match file_type(&stdin)? {
        FileType::Fifo => Box::pin(pipe::Receiver::from_owned_fd(copy)?),
        FileType::Socket => Box::pin(socket(copy)?),
        _ => Box::pin(tokio::io::stdin()),
    })
}

fn output() -> io::Result<Output> {
    let stdout = io::stdout();
    let copy = stdout.as_fd().try_clone_to_owned()?;
    Ok(match file_type(&stdout)? {
        FileType::Fifo => Box::pin(pipe::Sender::from_owned_fd(copy)?),
        FileType::Socket => Box::pin(socket(copy)?),
        _ => Box::pin(tokio::io::stdout()),
    })
}

fn file_type(stream: impl AsFd) -> io::Result<FileType> {
    let stat = rustix::fs::fstat(stream)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn socket(fd: std::os::fd::OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
