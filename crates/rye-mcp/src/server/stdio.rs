//! The server on a process's standard input and output.

mod lines;
mod plain;

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

use lines::Lines;

/// Serves one client until it hangs up, or until told to stop: what was answered by then is
/// still written.
///
/// A client that hangs up has five seconds' worth of answers to the calls that run, for it
/// may only have nothing more to ask; then they are ended.
pub async fn serve_stdio<H: ServerHandler>(handler: H, stop: CancellationToken) -> io::Result<()> {
    let lines = Lines::new(input()?, output()?);
    let running = handler.serve_with_ct(lines, stop).await;
    match running {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        // A client that leaves before it has said anything is no failure.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

type Input = Pin<Box<dyn AsyncRead + Send>>;
type Output = Pin<Box<dyn AsyncWrite + Send>>;

/// Clients give pipes or sockets, which the runtime waits for itself. Anything else, such as a
/// terminal, has a thread that reads it, which costs a message some ten microseconds.
fn input() -> io::Result<Input> {
    let stdin = io::stdin();
    let copy = stdin.as_fd().try_clone_to_owned()?;
    Ok(match kind(&stdin)? {
        FileType::Fifo => Box::pin(pipe::Receiver::from_owned_fd(copy)?),
        FileType::Socket => Box::pin(socket(copy)?),
        _ => Box::pin(tokio::io::stdin()),
    })
}

fn output() -> io::Result<Output> {
    let stdout = io::stdout();
    let copy = stdout.as_fd().try_clone_to_owned()?;
    Ok(match kind(&stdout)? {
        FileType::Fifo => Box::pin(pipe::Sender::from_owned_fd(copy)?),
        FileType::Socket => Box::pin(socket(copy)?),
        _ => Box::pin(tokio::io::stdout()),
    })
}

fn kind(stream: impl AsFd) -> io::Result<FileType> {
    let stat = rustix::fs::fstat(stream)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn socket(fd: std::os::fd::OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
