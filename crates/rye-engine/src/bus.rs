//! Event delivery: live to subscribers, and from the store for events they missed.

mod in_flight;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rye_protocol::{Entry, Event, EventKind, SessionId, ThreadId};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::store::{SessionStore, StoreError};
use in_flight::{InFlightMessages, ends};

/// How many events a subscriber may lag behind before it reads from the store. Each session
/// allocates a buffer of this size.
const SUBSCRIPTION_CAPACITY: usize = 256;

/// The same for subscribers to all sessions.
const FEED_CAPACITY: usize = 1024;

/// How many events are read from the store at once.
pub(crate) const PAGE: usize = 256;

/// An event, with the entry it refers to if that was just committed.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The event itself.
    pub event: Event,
    /// The new entry; `None` if the event was read from the store.
    pub entry: Option<Arc<Entry>>,
}

/// Publishes one session's events.
#[derive(Debug, Clone)]
pub(crate) struct Bus {
    sender: broadcast::Sender<LiveNotice>,
    /// Highest sequence number published so far.
    last: Arc<AtomicU64>,
    in_flight: Arc<Mutex<InFlightMessages>>,
    /// Signals a write by a process without the lease.
    external_writes: watch::Sender<()>,
    /// Sender for subscribers to all sessions.
    all: broadcast::Sender<FeedNotice>,
    /// Owner of the session.
    user: Option<Arc<str>>,
}

/// A notice for one session's subscribers.
#[derive(Debug, Clone)]
struct LiveNotice {
    notice: Arc<Notice>,
    /// Highest sequence number published before it.
    after: u64,
}

/// A notice for subscribers to all sessions.
#[derive(Debug, Clone)]
pub(crate) struct FeedNotice {
    notice: Arc<Notice>,
    user: Option<Arc<str>>,
}

impl Bus {
    pub(crate) fn new(all: broadcast::Sender<FeedNotice>, user: Option<&str>) -> Self {
        let (sender, _) = broadcast::channel(SUBSCRIPTION_CAPACITY);
        let user = user.map(Arc::from);
        let (last, in_flight) = (Arc::default(), Arc::default());
        Self {
            sender,
            last,
            in_flight,
            external_writes: watch::Sender::default(),
            all,
            user,
        }
    }

    /// Sets the sequence number of the last stored event.
    /// Sequence number of the last event that was published.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    pub(crate) fn set_last_sequence(&self, last: u64) {
        self.last.fetch_max(last, Ordering::AcqRel);
    }

    /// Another process has written events to the store.
    pub(crate) fn notify_external_write(&self) {
        self.external_writes.send_replace(());
    }

    /// Publishes an event to all subscribers.
    pub(crate) fn publish(&self, notice: Notice) {
        let number = notice.event.sequence.unwrap_or_default();
        // Under the lock, so that a new subscriber gets each delta exactly once.
        let mut in_flight = self.in_flight.lock();
        let after = self.last.fetch_max(number, Ordering::AcqRel);
        in_flight.apply(&notice.event, after);
        // Skip the copies without subscribers.
        let (has_feeds, has_subscribers) = (
            self.all.receiver_count() > 0,
            self.sender.receiver_count() > 0,
        );
        if !has_feeds && !has_subscribers {
            return;
        }
        let notice = Arc::new(notice);
        if has_feeds {
            let (notice, user) = (Arc::clone(&notice), self.user.clone());
            let _ = self.all.send(FeedNotice { notice, user });
        }
        if has_subscribers {
            let _ = self.sender.send(LiveNotice { notice, after });
        }
    }

    pub(crate) fn subscribe(
        &self,
        store: Arc<dyn SessionStore>,
        session: SessionId,
        after: u64,
        closed: CancellationToken,
    ) -> Subscription {
        let in_flight = self.in_flight.lock();
        Subscription {
            live: self.sender.subscribe(),
            external_writes: self.external_writes.subscribe(),
            in_flight: in_flight.notices(),
            backlog: VecDeque::new(),
            behind: true,
            last: after,
            ended: HashMap::new(),
            store,
            session,
            closed,
        }
    }
}

/// A session's events: every stored event once and in order, with ephemeral events in between.
/// A subscriber that is too slow gets a `lagged` event and continues from the store.
pub struct Subscription {
    live: broadcast::Receiver<LiveNotice>,
    external_writes: watch::Receiver<()>,
    /// The message in progress when the subscription started.
    in_flight: VecDeque<LiveNotice>,
    backlog: VecDeque<Event>,
    /// Whether the store may hold events that were not delivered yet.
    behind: bool,
    last: u64,
    /// Sequence number of the last message or tool end, by thread.
    ended: HashMap<Option<ThreadId>, u64>,
    store: Arc<dyn SessionStore>,
    session: SessionId,
    closed: CancellationToken,
}

impl Subscription {
    /// The next event; `None` once the session is closed.
    pub async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                self.on_delivered(&event);
                return Ok(Some(Notice { event, entry: None }));
            }
            if self.behind {
                let page = self.store.events(&self.session, self.last, PAGE).await?;
                self.behind = page.len() == PAGE;
                self.backlog = page.into();
                continue;
            }
            if let Some(live) = self.in_flight.pop_front() {
                if self.is_outdated(&live) {
                    continue;
                }
                return Ok(Some(Arc::unwrap_or_clone(live.notice)));
            }
            // Events published before the close are delivered first.
            let received = tokio::select! {
                biased;
                Ok(()) = self.external_writes.changed() => {
                    self.behind = true;
                    continue;
                }
                received = self.live.recv() => received,
                () = self.closed.cancelled() => return Ok(None),
            };
            match received {
                Ok(live) => match live.notice.event.sequence {
                    // Already read from the store.
                    Some(number) if number <= self.last => {}
                    // Another process wrote the events before it.
                    Some(number) if number > self.last + 1 => self.behind = true,
                    Some(_) => {
                        self.on_delivered(&live.notice.event);
                        return Ok(Some(Arc::unwrap_or_clone(live.notice)));
                    }
                    // Belongs to a message or call whose end was already delivered.
                    None if self.is_outdated(&live) => {}
                    None => return Ok(Some(Arc::unwrap_or_clone(live.notice))),
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

impl Subscription {
    /// Records that a stored event is delivered.
    fn on_delivered(&mut self, event: &Event) {
        let Some(number) = event.sequence else {
            return;
        };
        self.last = number;
        if ends(&event.kind) {
            self.ended.insert(event.thread.clone(), number);
        }
    }

    /// Whether an ephemeral event is outdated.
    fn is_outdated(&self, live: &LiveNotice) -> bool {
        let ended = self.ended.get(&live.notice.event.thread);
        ended.is_some_and(|number| *number > live.after)
    }
}

/// The channel for subscribers to all sessions.
pub(crate) fn feed_channel() -> broadcast::Sender<FeedNotice> {
    broadcast::channel(FEED_CAPACITY).0
}

/// Live events of all sessions that are open in an engine, also of those opened later. Earlier
/// events are available from the [subscription](Subscription) of each session.
pub struct Feed {
    live: broadcast::Receiver<FeedNotice>,
    filter: Filter,
}

/// Selects events; an unset field selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this session.
    pub session: Option<SessionId>,
    /// Only sessions of this user.
    pub user: Option<String>,
    /// Only events of these [types](EventKind::name); empty for all.
    pub types: BTreeSet<String>,
}

impl Filter {
    fn matches(&self, notice: &FeedNotice) -> bool {
        let event = &notice.notice.event;
        let types = &self.types;
        self.session.as_ref().is_none_or(|it| event.session == *it)
            && self
                .user
                .as_ref()
                .is_none_or(|it| notice.user.as_deref() == Some(it))
            && (types.is_empty() || types.contains(event.kind.name()))
    }
}

impl Feed {
    pub(crate) fn new(all: &broadcast::Sender<FeedNotice>, filter: Filter) -> Self {
        Self {
            live: all.subscribe(),
            filter,
        }
    }

    /// The next event; `None` once the engine is dropped. A subscriber that is too slow gets the
    /// number of missed events.
    pub async fn next(&mut self) -> Result<Option<Notice>, MissedEvents> {
        loop {
            match self.live.recv().await {
                Ok(notice) if self.filter.matches(&notice) => {
                    return Ok(Some(Arc::unwrap_or_clone(notice.notice)));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Closed) => return Ok(None),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    return Err(MissedEvents(missed));
                }
            }
        }
    }
}

/// A subscriber was too slow and missed this many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} events were lost because the subscriber was too slow")]
pub struct MissedEvents(pub u64);
