//! Who listens: live, and from the record for what they missed.

use std::collections::VecDeque;
use std::sync::Arc;

use rye_protocol::{Entry, Event, EventKind, SessionId};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::store::{SessionStore, StoreError};

/// How many events a slow listener may be behind before it reads the record instead.
const BEHIND: usize = 1024;

/// How many events are read from the record at once.
const PAGE: usize = 256;

/// An event, and the entry that it tells of where it was just written.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The event.
    pub event: Event,
    /// The entry, unless the event was read from the record.
    pub entry: Option<Arc<Entry>>,
}

/// A session's events, to all who listen.
#[derive(Debug, Clone)]
pub(crate) struct Bus {
    sender: broadcast::Sender<Notice>,
}

impl Bus {
    pub(crate) fn new() -> Self {
        let (sender, _) = broadcast::channel(BEHIND);
        Self { sender }
    }

    pub(crate) fn tell(&self, notice: Notice) {
        // Nobody need listen.
        let _ = self.sender.send(notice);
    }

    pub(crate) fn subscribe(
        &self,
        store: Arc<dyn SessionStore>,
        session: SessionId,
        after: u64,
        closed: CancellationToken,
    ) -> Subscription {
        Subscription {
            live: self.sender.subscribe(),
            backlog: VecDeque::new(),
            behind: true,
            last: after,
            store,
            session,
            closed,
        }
    }
}

/// A session's events: every numbered one once and in order, with what is only live in
/// between. A listener that is too slow is told so, and reads on from the record.
pub struct Subscription {
    live: broadcast::Receiver<Notice>,
    backlog: VecDeque<Event>,
    /// Whether the record may hold more than was told.
    behind: bool,
    last: u64,
    store: Arc<dyn SessionStore>,
    session: SessionId,
    closed: CancellationToken,
}

impl Subscription {
    /// The next event; none once the session is closed.
    pub async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                self.last = event.sequence.unwrap_or(self.last);
                return Ok(Some(Notice { event, entry: None }));
            }
            if self.behind {
                let page = self.store.events(&self.session, self.last, PAGE).await?;
                self.behind = page.len() == PAGE;
                self.backlog = page.into();
                continue;
            }
            // What was told before the end is heard before it.
            let told = tokio::select! {
                biased;
                told = self.live.recv() => told,
                () = self.closed.cancelled() => return Ok(None),
            };
            match told {
                Ok(notice) => match notice.event.sequence {
                    // Read from the record already.
                    Some(number) if number <= self.last => {}
                    // Somebody without the lease wrote what comes before.
                    Some(number) if number > self.last + 1 => self.behind = true,
                    Some(number) => {
                        self.last = number;
                        return Ok(Some(notice));
                    }
                    None => return Ok(Some(notice)),
                },
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    self.behind = true;
                    let event = Event {
                        sequence: None,
                        session: self.session.clone(),
                        thread: None,
                        at: rye_protocol::Millis::default(),
                        kind: EventKind::Lagged { missed },
                    };
                    return Ok(Some(Notice { event, entry: None }));
                }
                Err(broadcast::error::RecvError::Closed) => return Ok(None),
            }
        }
    }
}
