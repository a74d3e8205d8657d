//! The events of all sessions that a caller can see, for one client.
//!
//! There is no position over all sessions: each event names its session and its position there, and
//! the first frame has the position of each unfinished session. A client that was disconnected
//! continues the sessions it is interested in with their own streams.

use std::collections::{BTreeMap, HashMap, VecDeque};

use futures_util::{Stream, stream};
use rye_engine::protocol::{Event, Purpose, Session, SessionId, SessionStatus};
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

/// The events of all sessions of a caller.
pub(crate) struct AllEvents {
    app: App,
    who: Principal,
    filter: Filter,
    /// Events of sessions that this process holds.
    feed: Feed,
    /// Notifies of commits by other processes.
    commits: watch::Receiver<()>,
    /// Positions in the sessions that other processes hold.
    foreign: BTreeMap<SessionId, u64>,
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
            foreign: BTreeMap::new(),
            known: HashMap::new(),
            queue: VecDeque::new(),
            is_over: false,
        };
        this.foreign = this.foreign_positions().await?;
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
                    Ok(Some(notice)) => self.push(&notice).await,
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

    /// Adds the frame for an event, if the caller wants and may see it.
    async fn push(&mut self, notice: &Notice) -> Result<(), Problem> {
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

    /// The sessions that other processes hold, and their positions: known ones, or the present one.
    async fn foreign_positions(&self) -> Result<BTreeMap<SessionId, u64>, StoreError> {
        let engine = self.app.engine();
        let mut positions = BTreeMap::new();
        for holder in engine.holders().await? {
            if engine.session(&holder.session).is_some() {
                continue;
            }
            let position = match self.foreign.get(&holder.session) {
                Some(last) => *last,
                None => engine.last_event(&holder.session).await?,
            };
            positions.insert(holder.session, position);
        }
        Ok(positions)
    }

    /// Reads what other processes have committed.
    async fn read_foreign(&mut self) -> Result<(), Problem> {
        let before = std::mem::take(&mut self.foreign);
        self.foreign.clone_from(&before);
        let held = self.foreign_positions().await?;
        // A session that was just released may have last events.
        let mut all = before;
        for (session, position) in &held {
            all.entry(session.clone()).or_insert(*position);
        }
        let engine = self.app.engine().clone();
        for (session, mut last) in all {
            loop {
                let page = match engine.events(&session, last, PAGE).await {
                    // It was deleted.
                    Err(StoreError::NotFound { .. }) => break,
                    page => page?,
                };
                let Some(end) = page.last().and_then(|event| event.sequence) else {
                    break;
                };
                last = end;
                for event in page {
                    self.push(&Notice { event, entry: None }).await?;
                }
            }
            if held.contains_key(&session) {
                self.foreign.insert(session, last);
            } else {
                self.foreign.remove(&session);
            }
        }
        Ok(())
    }

    /// The frames as a stream.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Frame> {
        stream::unfold(self, |mut this| async move {
            let frame = this.next().await?;
            Some((frame, this))
        })
    }
}
