//! Being asked to end, as something that can be waited for.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

use super::keeper::end_signals;

/// What is read when a signal has come. It begins with its number.
const RECORD: usize = size_of::<libc::signalfd_siginfo>();

/// How this program was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `SIGINT`: a person interrupts it.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
}

/// Hears `SIGINT` and `SIGTERM`, which do nothing else from then on: one that comes
/// late must not end a program that is ending already, and has something left to do.
#[derive(Debug)]
pub struct Asks(Signals);

/// A runtime knows of them once somebody waits.
#[derive(Debug)]
enum Signals {
    Unwaited(Option<OwnedFd>),
    Waited(pipe::Receiver),
}

impl Asks {
    /// Begins to listen. It is this thread, and those that it starts later, which
    /// the signals do not end any more: so it comes before other threads.
    pub fn listen() -> io::Result<Self> {
        let signals = end_signals()?;
        Ok(Self(Signals::Unwaited(Some(signals))))
    }

    /// Waits until the program is asked, also if it was since it listens. May be
    /// dropped and called again, within the same Tokio runtime, which has I/O enabled.
    pub async fn next(&mut self) -> io::Result<Ask> {
        if let Signals::Unwaited(signals) = &mut self.0 {
            let signals = signals.take().ok_or(io::ErrorKind::NotConnected)?;
            self.0 = Signals::Waited(pipe::Receiver::from_owned_fd_unchecked(signals)?);
        }
        let Signals::Waited(signals) = &self.0 else {
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
            libc::SIGINT => Ok(Ask::Interrupt),
            _ => Ok(Ask::Terminate),
        }
    }
}
