//! The process of a server, with all that it starts.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lillux::process::{Command, ExecError, Exit, Output, Stream, Supervisor};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::said::Heard;

/// How long a server has to end by itself once its input is closed.
const POLITE: Duration = Duration::from_secs(1);
/// How long its end is waited for, to tell how it came.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server's process. Dropped, its whole tree ends.
#[derive(Debug)]
pub(super) struct Process {
    end: watch::Receiver<Option<End>>,
    stop: CancellationToken,
    _stopped_when_dropped: DropGuard,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It never ran.
    NotStarted(String),
    /// By itself; in words that go after "the server".
    Ended(String),
    /// By us.
    Stopped,
}

impl Process {
    /// Starts a command. What it writes to standard error is heard, always, so that
    /// a flood of it holds up nothing.
    pub(super) fn start(
        supervisor: &Supervisor,
        command: Command<'static>,
        heard: Heard,
    ) -> io::Result<(Self, Receiver, Sender)> {
        let (its_input, input) = io::pipe()?;
        let (output, its_output) = io::pipe()?;
        let input = Sender::from_owned_fd(input.into())?;
        let output = Receiver::from_owned_fd(output.into())?;
        let command = command
            .stdin_fd(OwnedFd::from(its_input))
            .stdout_fd(OwnedFd::from(its_output))
            .output_limit(0)
            .on_output(move |stream, bytes| {
                if stream == Stream::Stderr {
                    heard.stderr(bytes);
                }
            });
        let (tell, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let supervisor = supervisor.clone();
        let stopped = stop.clone();
        tokio::spawn(async move {
            let end = tokio::select! {
                outcome = supervisor.exec(command) => how(outcome),
                // Dropping the call ends the tree.
                () = stopped.cancelled() => End::Stopped,
            };
            let _ = tell.send(Some(end));
        });
        let process = Self {
            end,
            _stopped_when_dropped: stop.clone().drop_guard(),
            stop,
        };
        Ok((process, output, input))
    }

    /// How it ended, if it has or does within a moment.
    pub(super) async fn ended(&self) -> Option<End> {
        self.ended_within(PATIENCE).await
    }

    async fn ended_within(&self, time: Duration) -> Option<End> {
        let mut end = self.end.clone();
        let ended = tokio::time::timeout(time, end.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// Gives it a moment to end by itself, which it should now that its input is
    /// closed, and then ends it with all that it started.
    pub(super) async fn end(&self) -> Option<End> {
        let end = self.ended_within(POLITE).await;
        self.stop.cancel();
        end
    }

    /// Ends it with all that it started.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

fn how(outcome: Result<Output, ExecError>) -> End {
    match outcome {
        Ok(output) => End::Ended(match output.exit {
            Exit::Code(code) => format!("ended with exit code {code}"),
            Exit::Signal(signal) => format!("was killed by signal {signal}"),
            Exit::Unknown => "ended, and nobody knows how".to_owned(),
        }),
        Err(ExecError::Launch(error)) => End::NotStarted(error.to_string()),
        Err(error) => End::Ended(format!("was lost: {error}")),
    }
}
