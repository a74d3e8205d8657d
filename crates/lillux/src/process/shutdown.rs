//! Waits for `SIGINT` and `SIGTERM`.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

use super::supervisor::block_shutdown_signals;

/// Size of one record of a signalfd. It begins with the signal's number.
const RECORD: usize = size_of::<libc::signalfd_siginfo>();

/// A signal that asks this process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownSignal {
    /// `SIGINT`, from the user's terminal.
    Interrupt,
    /// `SIGTERM`, from another program.
    Terminate,
}

/// Receives `SIGINT` and `SIGTERM` through a signalfd. From then on they no longer end the
/// process, so a late signal cannot interrupt its cleanup.
#[derive(Debug)]
pub struct ShutdownSignals(Source);

/// The signalfd, registered with the Tokio runtime on the first wait.
#[derive(Debug)]
enum Source {
    Unregistered(Option<OwnedFd>),
    Registered(pipe::Receiver),
}

impl ShutdownSignals {
    /// Blocks the signals in this thread and in threads started later. Call it before
    /// starting threads.
    pub fn listen() -> io::Result<Self> {
        let signals = block_shutdown_signals()?;
        Ok(Self(Source::Unregistered(Some(signals))))
    }

    /// Waits for the next signal since [`listen`](Self::listen). Cancel safe. All calls must
    /// run in the same Tokio runtime with I/O enabled.
    pub async fn next(&mut self) -> io::Result<ShutdownSignal> {
        if let Source::Unregistered(signals) = &mut self.0 {
            let signals = signals.take().ok_or(io::ErrorKind::NotConnected)?;
            self.0 = Source::Registered(pipe::Receiver::from_owned_fd_unchecked(signals)?);
        }
        let Source::Registered(signals) = &self.0 else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut record = [0; RECORD];
        loop {
            signals.readable().await?;
            match signals.try_read(&mut record) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let [a, b, c, d, ..] = record;
        match i32::from_ne_bytes([a, b, c, d]) {
            libc::SIGINT => Ok(ShutdownSignal::Interrupt),
            _ => Ok(ShutdownSignal::Terminate),
        }
    }
}
