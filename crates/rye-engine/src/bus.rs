//! Who listens: live, and from the record for what they missed.

mod said;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_protocol::{Entry, Event, EventKind, SessionId, ThreadId};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::store::{SessionStore, StoreError};
use said::{Said, ends};

/// How many events a slow listener may be behind before it reads the record instead.
/// There is room for as many in every session, so that it must not be large.
const BEHIND: usize = 256;

/// The same for whoever listens to all sessions.
const BEHIND_ALL: usize = 1024;

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
    sender: broadcast::Sender<Live>,
    /// The highest number that was told.
    last: Arc<AtomicU64>,
    said: Arc<Mutex<Said>>,
    /// That somebody without the lease has written something.
    others: watch::Sender<()>,
    /// Whoever listens to all sessions.
    all: broadcast::Sender<ToAll>,
    /// Whose session it is.
    user: Option<Arc<str>>,
}

/// What is told to whoever listens to a session.
#[derive(Debug, Clone)]
struct Live {
    notice: Arc<Notice>,
    /// The highest number that was told before it.
    after: u64,
}

/// What is told to whoever listens to all sessions.
#[derive(Debug, Clone)]
pub(crate) struct ToAll {
    notice: Arc<Notice>,
    user: Option<Arc<str>>,
}

impl Bus {
    pub(crate) fn new(all: broadcast::Sender<ToAll>, user: Option<&str>) -> Self {
        let (sender, _) = broadcast::channel(BEHIND);
        let user = user.map(Arc::from);
        let (last, said) = (Arc::default(), Arc::default());
        Self {
            sender,
            last,
            said,
            others: watch::Sender::default(),
            all,
            user,
        }
    }

    /// So many events are in the record already: what is told live from now on is not older
    /// than they are.
    pub(crate) fn go_on(&self, last: u64) {
        self.last.fetch_max(last, Ordering::AcqRel);
    }

    /// Somebody without the lease has written something, which stands in the record alone.
    pub(crate) fn others_wrote(&self) {
        self.others.send_replace(());
    }

    pub(crate) fn tell(&self, notice: Notice) {
        let number = notice.event.sequence.unwrap_or_default();
        // Whoever begins to listen now hears of it once: from what was said, or live.
        let mut said = lock(&self.said);
        let after = self.last.fetch_max(number, Ordering::AcqRel);
        said.take_in(&notice.event, after);
        // Nobody need listen.
        let (to_all, to_some) = (
            self.all.receiver_count() > 0,
            self.sender.receiver_count() > 0,
        );
        if !to_all && !to_some {
            return;
        }
        let notice = Arc::new(notice);
        if to_all {
            let (notice, user) = (Arc::clone(&notice), self.user.clone());
            let _ = self.all.send(ToAll { notice, user });
        }
        if to_some {
            let _ = self.sender.send(Live { notice, after });
        }
    }

    pub(crate) fn subscribe(
        &self,
        store: Arc<dyn SessionStore>,
        session: SessionId,
        after: u64,
        closed: CancellationToken,
    ) -> Subscription {
        let said = lock(&self.said);
        Subscription {
            live: self.sender.subscribe(),
            others: self.others.subscribe(),
            said: said.told(),
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

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session's events: every numbered one once and in order, with what is only live in
/// between. A listener that is too slow is told so, and reads on from the record.
pub struct Subscription {
    live: broadcast::Receiver<Live>,
    others: watch::Receiver<()>,
    /// What was being said when it began.
    said: VecDeque<Live>,
    backlog: VecDeque<Event>,
    /// Whether the record may hold more than was told.
    behind: bool,
    last: u64,
    /// By thread, the number of the last end of something that is told live.
    ended: HashMap<Option<ThreadId>, u64>,
    store: Arc<dyn SessionStore>,
    session: SessionId,
    closed: CancellationToken,
}

impl Subscription {
    /// The next event; none once the session is closed.
    pub async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                self.hear(&event);
                return Ok(Some(Notice { event, entry: None }));
            }
            if self.behind {
                let page = self.store.events(&self.session, self.last, PAGE).await?;
                self.behind = page.len() == PAGE;
                self.backlog = page.into();
                continue;
            }
            if let Some(live) = self.said.pop_front() {
                if self.is_over(&live) {
                    continue;
                }
                return Ok(Some(Arc::unwrap_or_clone(live.notice)));
            }
            // What was told before the end is heard before it.
            let told = tokio::select! {
                biased;
                Ok(()) = self.others.changed() => {
                    self.behind = true;
                    continue;
                }
                told = self.live.recv() => told,
                () = self.closed.cancelled() => return Ok(None),
            };
            match told {
                Ok(live) => match live.notice.event.sequence {
                    // Read from the record already.
                    Some(number) if number <= self.last => {}
                    // Somebody without the lease wrote what comes before.
                    Some(number) if number > self.last + 1 => self.behind = true,
                    Some(_) => {
                        self.hear(&live.notice.event);
                        return Ok(Some(Arc::unwrap_or_clone(live.notice)));
                    }
                    // Of something whose end was read from the record already.
                    None if self.is_over(&live) => {}
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
    /// A numbered event is told.
    fn hear(&mut self, event: &Event) {
        let Some(number) = event.sequence else {
            return;
        };
        self.last = number;
        if ends(&event.kind) {
            self.ended.insert(event.thread.clone(), number);
        }
    }

    /// Whether something live comes too late.
    fn is_over(&self, live: &Live) -> bool {
        let ended = self.ended.get(&live.notice.event.thread);
        ended.is_some_and(|number| *number > live.after)
    }
}

/// A channel for those who listen to all sessions.
pub(crate) fn all() -> broadcast::Sender<ToAll> {
    broadcast::channel(BEHIND_ALL).0
}

/// What happens in all sessions that are open in an engine, live: also in those that are
/// opened later. What happened before is in the [subscription](Subscription) of each.
pub struct Feed {
    live: broadcast::Receiver<ToAll>,
    filter: Filter,
}

/// What somebody wants to hear of. What is not said is not asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this session alone.
    pub session: Option<SessionId>,
    /// Of this user's sessions alone.
    pub user: Option<String>,
    /// Of events of these [types](EventKind::name) alone; of all, if there are none.
    pub types: BTreeSet<String>,
}

impl Filter {
    fn lets(&self, told: &ToAll) -> bool {
        let event = &told.notice.event;
        let types = &self.types;
        self.session.as_ref().is_none_or(|it| event.session == *it)
            && self
                .user
                .as_ref()
                .is_none_or(|it| told.user.as_deref() == Some(it))
            && (types.is_empty() || types.contains(event.kind.name()))
    }
}

impl Feed {
    pub(crate) fn new(all: &broadcast::Sender<ToAll>, filter: Filter) -> Self {
        Self {
            live: all.subscribe(),
            filter,
        }
    }

    /// The next event; none once the engine is gone. Whoever is too slow is told how many
    /// they missed.
    pub async fn next(&mut self) -> Result<Option<Notice>, MissedEvents> {
        loop {
            match self.live.recv().await {
                Ok(told) if self.filter.lets(&told) => {
                    return Ok(Some(Arc::unwrap_or_clone(told.notice)));
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

/// A listener was too slow, and missed so many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} events were missed")]
pub struct MissedEvents(pub u64);
