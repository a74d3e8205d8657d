//! The process tree of a stdio server.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lillux::process::{Command, ExecError, Exit, Output, Stream, Supervisor};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::diagnostics::DiagnosticsLog;

/// How long a server may take to exit after its standard input is closed.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// How long to wait for the exit of a server in order to report it.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// A server's process. Dropping it kills the process tree.
#[derive(Debug)]
pub(super) struct ServerProcess {
    end: watch::Receiver<Option<ProcessEnd>>,
    stop: CancellationToken,
    _stopped_when_dropped: DropGuard,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    /// The program was not started.
    NotStarted(String),
    /// The process exited; described by a predicate such as "exited with code 1".
    Exited(String),
    /// This program stopped it.
    Stopped,
}

impl ServerProcess {
    /// Starts a command. Standard error is always read, so a flood of it cannot block the server.
    pub(super) fn start(
        supervisor: &Supervisor,
        command: Command<'static>,
        log: DiagnosticsLog,
    ) -> io::Result<(Self, Receiver, Sender)> {
        let (child_stdin, input) = io::pipe()?;
        let (output, child_stdout) = io::pipe()?;
        let input = Sender::from_owned_fd(input.into())?;
        let output = Receiver::from_owned_fd(output.into())?;
        let command = command
            .stdin_fd(OwnedFd::from(child_stdin))
            .stdout_fd(OwnedFd::from(child_stdout))
            .output_limit(0)
            .on_output(move |stream, bytes| {
                if stream == Stream::Stderr {
                    log.push_stderr(bytes);
                }
            });
        let (end_tx, end) = watch::channel(None);
        let stop = CancellationToken::new();
        let supervisor = supervisor.clone();
        let stopped = stop.clone();
        tokio::spawn(async move {
            let end = tokio::select! {
                outcome = supervisor.exec(command) => describe_end(outcome),
                // Dropping the call kills the tree.
                () = stopped.cancelled() => ProcessEnd::Stopped,
            };
            let _ = end_tx.send(Some(end));
        });
        let process = Self {
            end,
            _stopped_when_dropped: stop.clone().drop_guard(),
            stop,
        };
        Ok((process, output, input))
    }

    /// Waits a short time for the end of the process.
    pub(super) async fn wait_end(&self) -> Option<ProcessEnd> {
        self.wait_end_within(EXIT_WAIT).await
    }

    async fn wait_end_within(&self, time: Duration) -> Option<ProcessEnd> {
        let mut end = self.end.clone();
        let ended = tokio::time::timeout(time, end.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// Gives the process, whose input is closed, a short time to exit, then kills the tree.
    pub(super) async fn shutdown(&self) -> Option<ProcessEnd> {
        let end = self.wait_end_within(EXIT_GRACE).await;
        self.stop.cancel();
        end
    }

    /// Kills the process tree.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

fn describe_end(outcome: Result<Output, ExecError>) -> ProcessEnd {
    match outcome {
        Ok(output) => ProcessEnd::Exited(match output.exit {
            Exit::Code(code) => format!("exited with code {code}"),
            Exit::Signal(signal) => format!("was killed by signal {signal}"),
            Exit::Unknown => "exited with unknown status".to_owned(),
        }),
        Err(ExecError::Launch(error)) => ProcessEnd::NotStarted(error.to_string()),
        Err(error) => ProcessEnd::Exited(format!("failed: {error}")),
    }
}
