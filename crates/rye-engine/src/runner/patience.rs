//! A store that does not answer: a disk that is full, a database that is not there. What a
//! thread has begun is not given up, however long that takes. Whoever waits for an answer is
//! told soon, and whoever listens too.

use std::time::Duration;

use rye_protocol::{ErrorCode, ErrorIds, ErrorInfo, EventKind};

use super::{Mail, Runner};
use crate::store::{StoreError, StoreFuture};

/// How long to wait before it is asked again; doubled each time.
const AGAIN: Duration = Duration::from_millis(50);
const AT_MOST: Duration = Duration::from_secs(2);

/// How long it may take before somebody is told.
const SOON: Duration = Duration::from_secs(1);

/// Pauses before a store is asked again, each longer than the last.
#[derive(Default)]
pub(super) struct Pauses {
    last: Option<Duration>,
    waited: Duration,
    told: bool,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let next = self.last.map_or(AGAIN, |last| (last * 2).min(AT_MOST));
        self.last = Some(next);
        self.waited += next;
        next
    }

    pub(super) fn is_long(&self) -> bool {
        self.waited >= SOON
    }
}

/// Reads from a store, however long it takes until it answers.
pub(super) async fn patiently<'a, T>(
    read: impl Fn() -> StoreFuture<'a, T>,
) -> Result<T, StoreError> {
    let mut pauses = Pauses::default();
    loop {
        match read().await {
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(pauses.next()).await,
            outcome => return outcome,
        }
    }
}

impl Runner {
    /// Waits a while. What others ask meanwhile is not done later, when they have stopped
    /// waiting for it: they hear at once that it cannot be done now.
    pub(super) async fn pause(&mut self, error: &StoreError, pauses: &mut Pauses) {
        let is_long = pauses.is_long();
        if is_long && !pauses.told {
            pauses.told = true;
            self.tell_of_waiting(error);
        }
        let end = tokio::time::sleep(pauses.next());
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                Some(mail) = self.mail.recv(), if is_long => self.later.extend(mail.refuse(error)),
            }
        }
    }

    fn tell_of_waiting(&self, error: &StoreError) {
        let why = format!("nothing can be written, and so nothing goes on until it can: {error}");
        let mut error = ErrorInfo::new(ErrorCode::Store, why);
        error.ids = ErrorIds {
            session: Some(self.shared.lease.session.clone()),
            thread: Some(self.machine.thread.id.clone()),
            ..ErrorIds::default()
        };
        self.live(EventKind::Error { error });
    }
}

impl Mail {
    /// Tells whoever waits for an answer why there is none; gives back what nobody waits for.
    fn refuse(self, error: &StoreError) -> Option<Self> {
        // Whoever asked may have gone away.
        match self {
            Self::Prompt { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Withdraw { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::CommandKind { reply, .. } | Self::Do(_, reply) => {
                drop(reply.send(Err(error.clone())))
            }
            Self::UndoCompaction(reply) => drop(reply.send(Err(error.clone()))),
            other => return Some(other),
        }
        None
    }
}
