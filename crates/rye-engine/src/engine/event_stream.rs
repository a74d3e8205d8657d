//! Follows the events of a session, whichever process holds it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rye_protocol::{Event, SessionId};
use tokio::sync::watch;

use super::{Engine, Inner, Session};
use crate::bus::{Notice, PAGE, Subscription};
use crate::store::StoreError;

/// Interval at which a stream that keeps its session running checks for a dead holder.
const HOLDER_CHECK: Duration = Duration::from_secs(1);

/// Signals to the streams that follow a session that another process has posted to, claimed or
/// released it, or that it was opened here.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<SessionId, Weak<watch::Sender<()>>>>);

impl Watchers {
    fn watch(&self, session: &SessionId) -> Arc<watch::Sender<()>> {
        let mut watchers = self.0.lock();
        if let Some(sender) = watchers.get(session).and_then(Weak::upgrade) {
            return sender;
        }
        watchers.retain(|_, sender| sender.strong_count() > 0);
        let sender = Arc::new(watch::Sender::default());
        watchers.insert(session.clone(), Arc::downgrade(&sender));
        sender
    }

    /// Signals the streams of one session.
    pub(super) fn notify(&self, session: &SessionId) {
        let sender = self.0.lock().get(session).and_then(Weak::upgrade);
        if let Some(sender) = sender {
            sender.send_replace(());
        }
    }

    /// Signals all streams.
    pub(super) fn notify_all(&self) {
        let senders: Vec<_> = self.0.lock().values().filter_map(Weak::upgrade).collect();
        for sender in senders {
            sender.send_replace(());
        }
    }
}

/// The events of a session: every stored event once and in order, whether this process holds the
/// session, another process does, or none. While this process holds it, events that are not stored
/// are in between, such as text deltas.
pub struct EventStream {
    engine: Weak<Inner>,
    session: SessionId,
    /// Sequence number of the last event that was returned.
    last: u64,
    source: Source,
    /// Events from the store.
    backlog: VecDeque<Event>,
    changed: watch::Receiver<()>,
    /// Keeps the watcher registered.
    _watcher: Arc<watch::Sender<()>>,
    keeps_running: bool,
    reports_failures: bool,
}

/// Where the next event comes from.
enum Source {
    /// This process holds the session.
    Live(Session, Box<Subscription>),
    Store {
        /// Notifies of commits if another process holds the session.
        commits: Option<watch::Receiver<()>>,
    },
}

impl EventStream {
    /// Opens the session in this process when no other process holds it any more and it has
    /// something to do.
    #[must_use]
    pub fn keep_running(mut self) -> Self {
        self.keeps_running = true;
        self
    }

    /// Returns the error when the session fails or is lost while this process holds it.
    #[must_use]
    pub fn report_failures(mut self) -> Self {
        self.reports_failures = true;
        self
    }

    /// Sequence number of the last stored event that was returned.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether events that are not stored arrive here too.
    pub fn is_live(&self) -> bool {
        matches!(self.source, Source::Live(..))
    }

    /// The next event; `None` once the session is removed or the engine is shut down. After an
    /// error the stream continues where it was. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                self.last = event.sequence.unwrap_or(self.last);
                return Ok(Some(Notice { event, entry: None }));
            }
            if let Source::Live(session, live) = &mut self.source {
                if let Some(notice) = live.next().await? {
                    self.last = notice.event.sequence.unwrap_or(self.last);
                    return Ok(Some(notice));
                }
                let failure = session.failure().filter(|_| self.reports_failures);
                self.source = Source::Store { commits: None };
                if let Some(failure) = failure {
                    return Err(failure);
                }
            }
            // Boxed, because it is large and rare.
            if !Box::pin(self.read_store()).await? {
                return Ok(None);
            }
        }
    }

    /// Reads more events from the store, switches to live events, or waits for a change. Returns
    /// false if the session is removed or the engine is shut down.
    async fn read_store(&mut self) -> Result<bool, StoreError> {
        let Some(engine) = self.engine.upgrade().filter(|it| !it.is_shut_down()) else {
            return Ok(false);
        };
        // Before reading, so that no later change is missed.
        self.changed.borrow_and_update();
        if let Some(open) = engine.open_session(&self.session) {
            let live = open.subscribe(self.last);
            self.source = Source::Live(open, Box::new(live));
            return Ok(true);
        }
        let is_held = engine.is_held(&self.session).await?;
        let Source::Store { commits } = &mut self.source else {
            return Ok(true);
        };
        match commits {
            Some(commits) if is_held => {
                commits.borrow_and_update();
            }
            None if is_held => *commits = Some(engine.store.subscribe_commits()),
            _ => *commits = None,
        }
        let store = Arc::clone(&engine.store);
        let page = store.events(&self.session, self.last, PAGE).await?;
        if !page.is_empty() {
            self.backlog = page.into();
            return Ok(true);
        }
        if store.session(&self.session).await?.is_none() {
            return Ok(false);
        }
        if self.keeps_running && !is_held {
            let engine = Engine { inner: engine };
            if !engine.is_quiescent(&self.session).await? {
                open_in_task(engine, self.session.clone()).await?;
                return Ok(true);
            }
        } else {
            // The engine may be dropped while this waits.
            drop(engine);
        }
        let committed = async {
            match commits {
                Some(commits) => commits.changed().await.unwrap_or(()),
                None => std::future::pending().await,
            }
        };
        let holder_check = async {
            if self.keeps_running && is_held {
                tokio::time::sleep(HOLDER_CHECK).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = self.changed.changed() => {}
            () = committed => {}
            () = holder_check => {}
        }
        Ok(true)
    }
}

/// Opens a session in a task of its own: if the stream were dropped halfway, this process would
/// hold the session and not run it.
async fn open_in_task(engine: Engine, session: SessionId) -> Result<(), StoreError> {
    let id = session.clone();
    let opened = tokio::spawn(async move { Box::pin(engine.inner.ensure_running(&id)).await });
    opened.await.unwrap_or_else(|panic| {
        let reason = panic.to_string();
        Err(StoreError::SessionFailed { session, reason })
    })
}

impl Engine {
    /// Follows a session's events after a sequence number; 0 for all. Needs no lease.
    pub async fn follow(&self, session: &SessionId, after: u64) -> Result<EventStream, StoreError> {
        self.inner.stored_session(session).await?;
        let watcher = self.inner.watchers.watch(session);
        let open = self.inner.open_session(session);
        let live = open.map(|open| {
            let events = open.subscribe(after);
            Source::Live(open, Box::new(events))
        });
        Ok(EventStream {
            engine: Arc::downgrade(&self.inner),
            session: session.clone(),
            last: after,
            source: live.unwrap_or(Source::Store { commits: None }),
            backlog: VecDeque::new(),
            changed: watcher.subscribe(),
            _watcher: watcher,
            keeps_running: false,
            reports_failures: false,
        })
    }

    /// Stored events after a sequence number, oldest first.
    pub async fn events(
        &self,
        session: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.inner.stored_session(session).await?;
        self.inner.store.events(session, after, limit).await
    }
}
