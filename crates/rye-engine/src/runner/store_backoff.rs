//! Backoff while the store is unavailable: `Runner::step_with` retries commits with it, reads are
//! retried here. Callers that wait for a reply get the error after a second, and subscribers get an
//! error event.

use std::time::Duration;

use rye_protocol::{ErrorCode, ErrorIds, ErrorInfo, EventKind};

use super::{Runner, ThreadCommand};
use crate::store::{StoreError, StoreFuture};

/// First delay between attempts; doubled each time.
const INITIAL_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(2);

/// How long the store may be unavailable before callers and subscribers get the error.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Exponential backoff between attempts.
#[derive(Default)]
pub(super) struct Backoff {
    last: Option<Duration>,
    waited: Duration,
    is_reported: bool,
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let next = self
            .last
            .map_or(INITIAL_DELAY, |last| (last * 2).min(MAX_DELAY));
        self.last = Some(next);
        self.waited += next;
        next
    }

    pub(super) fn is_long(&self) -> bool {
        self.waited >= REPORT_AFTER
    }
}

/// Repeats a read until the store answers.
pub(super) async fn retry_until_available<'a, T>(
    read: impl Fn() -> StoreFuture<'a, T>,
) -> Result<T, StoreError> {
    let mut backoff = Backoff::default();
    loop {
        match read().await {
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(backoff.next()).await,
            outcome => return outcome,
        }
    }
}

impl Runner {
    /// Waits before the next attempt. Once the outage is long, commands whose callers wait for a
    /// reply are refused instead of being queued.
    pub(super) async fn pause(&mut self, error: &StoreError, backoff: &mut Backoff) {
        let is_long = backoff.is_long();
        if is_long && !backoff.is_reported {
            backoff.is_reported = true;
            self.publish_outage(error);
        }
        let end = tokio::time::sleep(backoff.next());
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                Some(command) = self.commands.recv(), if is_long => self.deferred.extend(command.refuse(error)),
            }
        }
    }

    fn publish_outage(&self, error: &StoreError) {
        let message = format!("the store is unavailable, retrying: {error}");
        let mut error = ErrorInfo::new(ErrorCode::Store, message);
        error.ids = ErrorIds {
            session: Some(self.shared.lease.session.clone()),
            thread: Some(self.machine.thread.id.clone()),
            ..ErrorIds::default()
        };
        self.publish_ephemeral(EventKind::Error { error });
    }
}

impl ThreadCommand {
    /// Replies with the error to a waiting caller; returns the command if no caller waits.
    fn refuse(self, error: &StoreError) -> Option<Self> {
        // The caller may have gone away.
        match self {
            Self::Prompt { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::WithdrawPrompt { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Command { reply, .. } | Self::Apply(_, reply) => {
                drop(reply.send(Err(error.clone())));
            }
            Self::UndoCompaction(reply) => drop(reply.send(Err(error.clone()))),
            other => return Some(other),
        }
        None
    }
}
