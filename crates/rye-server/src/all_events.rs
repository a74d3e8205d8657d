//! The events of all sessions that a caller can see, for one client.
//!
//! There is no position over all sessions: each event names its session and its position there, and
//! the first frame has the position of each unfinished session. A client that was disconnected
//! continues the sessions it is interested in with their own streams.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use futures_util::{Stream, stream};
use rye_engine::protocol::{Event, GateId, Millis, Purpose, Session, SessionId, SessionStatus};
use rye_engine::store::{SessionFilter, StoreError};
use rye_engine::{Feed, MissedEvents, Notice};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::auth::Principal;
use crate::cursor::Cursor;
use crate::events::{Filter, Frame, closing_frame, event_frame};
use crate::problem::Problem;
use crate::server::App;

/// Maximum number of sessions in the first frame.
const MAX_SESSIONS: usize = 1000;

/// Number of events that are read at once.
const PAGE: usize = 256;

/// Pending gates of a session, and when they were opened.
type PendingGates = BTreeMap<GateId, Millis>;

/// The events of all sessions of a caller.
pub(crate) struct AllEvents {
    app: App,
    who: Principal,
    filter: Filter,
    /// Events of sessions that this process holds.
    feed: Feed,
    /// Notifies of commits by other processes.
    commits: watch::Receiver<()>,
    /// Sessions that other processes hold.
    foreign: BTreeSet<SessionId>,
    /// The pending gates of all sessions. Whoever decides one writes the decision past the process
    /// that holds the session, which may be this one.
    gates: BTreeMap<SessionId, PendingGates>,
    /// Sequence number of the last event of each session that was read or published here.
    positions: HashMap<SessionId, u64>,
    /// Sessions that were looked up; `None` if the caller cannot see it.
    known: HashMap<SessionId, Option<Session>>,
    queue: VecDeque<Frame>,
    is_over: bool,
}

impl AllEvents {
    /// Starts a stream at the current state.
    pub(crate) async fn new(app: App, who: Principal, filter: Filter) -> Result<Self, Problem> {
        // Before the state is read, so that no event is missed.
        let feed = app.engine().feed();
        let commits = app.engine().store().subscribe_commits();
        let mut this = Self {
            app,
            who,
            filter,
            feed,
            commits,
            foreign: BTreeSet::new(),
            gates: BTreeMap::new(),
            positions: HashMap::new(),
            known: HashMap::new(),
            queue: VecDeque::new(),
            is_over: false,
        };
        this.foreign = this.held_elsewhere().await?;
        this.gates = this.pending_gates().await?;
        for session in this.foreign.iter().chain(this.gates.keys()) {
            let last = this.app.engine().last_event(session).await?;
            this.positions.insert(session.clone(), last);
        }
        let init = this.init().await?;
        this.queue.push_back(init);
        Ok(this)
    }

    /// The first frame: unfinished sessions with their positions, newest first.
    async fn init(&self) -> Result<Frame, Problem> {
        let engine = self.app.engine();
        let filter = SessionFilter {
            limit: MAX_SESSIONS,
            ..SessionFilter::default()
        };
        let mut sessions = Vec::new();
        for session in engine.sessions(filter).await? {
            let is_listed = session.status != SessionStatus::Terminated
                && session.purpose != Purpose::Child
                && session.unreadable.is_none();
            if !is_listed || !self.who.can_see(&session) {
                continue;
            }
            let last = engine.last_event(&session.id).await?;
            let cursor = Cursor::new(&session, last).to_string();
            sessions.push(json!({
                "id": session.id,
                "title": session.title,
                "status": session.status,
                "cursor": cursor,
            }));
        }
        Ok(Frame::new("init", json!({ "sessions": sessions })))
    }

    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.queue.pop_front() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            let draining = self.app.draining.clone();
            let step = tokio::select! {
                biased;
                () = draining.cancelled() => {
                    self.is_over = true;
                    return Some(closing_frame());
                }
                notice = self.feed.next() => match notice {
                    Ok(Some(notice)) => self.publish(&notice).await,
                    Ok(None) => return None,
                    Err(MissedEvents(missed)) => {
                        self.queue.push_back(Frame::new("lagged", json!({ "missed": missed })));
                        self.init().await.map(|init| self.queue.push_back(init))
                    }
                },
                changed = self.commits.changed() => match changed {
                    Ok(()) => self.read_foreign().await,
                    Err(_) => return None,
                },
            };
            if let Err(problem) = step {
                self.is_over = true;
                self.queue.push_back(Frame::new("problem", problem.json()));
            }
        }
    }

    /// Adds an event that this process published, after those that others wrote before it.
    async fn publish(&mut self, notice: &Notice) -> Result<(), Problem> {
        let session = &notice.event.session;
        let position = self.positions.get(session).copied();
        match (notice.event.sequence, position) {
            // Events of a session that was created again start at 1.
            (Some(number), Some(last)) if number > 1 && number <= last => Ok(()),
            (Some(number), Some(last)) if number > last + 1 => self.read(session, Millis(0)).await,
            _ => self.push(notice).await,
        }
    }

    /// Adds the frame for an event, if the caller wants and may see it.
    async fn push(&mut self, notice: &Notice) -> Result<(), Problem> {
        if let Some(number) = notice.event.sequence {
            let session = notice.event.session.clone();
            self.positions.insert(session, number);
        }
        if !self.filter.matches(&notice.event) {
            return Ok(());
        }
        if let Some(session) = self.visible(&notice.event).await? {
            let mut frame = event_frame(&session, notice)?;
            // Not a position in this stream.
            let cursor = frame.cursor.take().map(|cursor| cursor.to_string());
            let mut data = frame.data.take();
            if let Some(cursor) = cursor {
                data["cursor"] = Value::String(cursor);
            }
            self.queue.push_back(Frame {
                cursor: None,
                data,
                ..frame
            });
        }
        Ok(())
    }

    /// The session of an event, if the caller can see it.
    async fn visible(&mut self, event: &Event) -> Result<Option<Session>, StoreError> {
        if let Some(known) = self.known.get(&event.session) {
            return Ok(known.clone());
        }
        let session = self.app.engine().session_data(&event.session).await?;
        let session = session.filter(|session| self.who.can_see(session));
        self.known.insert(event.session.clone(), session.clone());
        Ok(session)
    }

    /// The sessions that other processes hold.
    async fn held_elsewhere(&self) -> Result<BTreeSet<SessionId>, StoreError> {
        let engine = self.app.engine();
        let holders = engine.holders().await?.into_iter();
        let sessions = holders.map(|holder| holder.session);
        Ok(sessions
            .filter(|session| engine.session(session).is_none())
            .collect())
    }

    /// The pending gates of all sessions.
    async fn pending_gates(&self) -> Result<BTreeMap<SessionId, PendingGates>, StoreError> {
        let mut sessions: BTreeMap<_, PendingGates> = BTreeMap::new();
        for gate in self.app.engine().pending_gates(None).await? {
            let gates = sessions.entry(gate.origin.session).or_default();
            gates.insert(gate.id, gate.created_at);
        }
        Ok(sessions)
    }

    /// Reads what other processes have committed.
    async fn read_foreign(&mut self) -> Result<(), Problem> {
        let held = self.held_elsewhere().await?;
        for session in &held {
            if !self.positions.contains_key(session) {
                let last = self.app.engine().last_event(session).await?;
                self.positions.insert(session.clone(), last);
            }
        }
        // A session that was just released may have last events.
        let before = std::mem::replace(&mut self.foreign, held.clone());
        for session in before.union(&held) {
            self.read(session, Millis(0)).await?;
        }
        let gates = self.pending_gates().await?;
        let before = std::mem::replace(&mut self.gates, gates.clone());
        for (session, gates) in &gates {
            let old = before.get(session);
            if old != Some(gates) {
                let is_new = |id: &&GateId| old.is_none_or(|old| !old.contains_key(*id));
                let new = gates.keys().filter(is_new).filter_map(|id| gates.get(id));
                let since = new.min().copied().unwrap_or_default();
                self.read(session, since).await?;
            }
        }
        for session in before.keys().filter(|it| !gates.contains_key(*it)) {
            self.read(session, Millis(0)).await?;
        }
        Ok(())
    }

    /// Adds the events of a session that are stored after its position. Of a session without a
    /// position, which a process held only briefly, it adds the events since a time.
    async fn read(&mut self, session: &SessionId, since: Millis) -> Result<(), Problem> {
        let engine = self.app.engine().clone();
        let (mut last, since) = if let Some(last) = self.positions.get(session) {
            (*last, Millis(0))
        } else {
            let last = engine.last_event(session).await?;
            (last.saturating_sub(PAGE as u64), since)
        };
        loop {
            let page = match engine.events(session, last, PAGE).await {
                // It was deleted.
                Err(StoreError::NotFound { .. }) => return Ok(()),
                page => page?,
            };
            let Some(end) = page.last().and_then(|event| event.sequence) else {
                return Ok(());
            };
            last = end;
            for event in page.into_iter().filter(|event| event.at >= since) {
                self.push(&Notice { event, entry: None }).await?;
            }
        }
    }

    /// The frames as a stream.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Frame> {
        stream::unfold(self, |mut this| async move {
            let frame = this.next().await?;
            Some((frame, this))
        })
    }
}
