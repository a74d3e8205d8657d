//! Event streams: replay from the store, then live, without a gap or a duplicate.
//!
//! Stored events carry a [cursor](Cursor); live events carry none, so a client's cursor always
//! names something durable. The same frames go over Server-Sent Events and WebSocket.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use futures_util::{Stream, stream};
use rye_engine::protocol::{Event, EventKind, Millis, Session, SessionId, ThreadId};
use rye_engine::store::SessionSnapshot;
use rye_engine::{Engine, Notice};
use rye_host::event_json;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::access::{SessionEvents, Sessions};
use crate::cursor::Cursor;
use crate::problem::Problem;

/// Interval at which a stream that ends when the session is idle looks again, in case a commit has
/// no event.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a client should wait before it reconnects to a server that shuts down.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// A message of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    /// The client's position once it has this frame.
    pub(crate) cursor: Option<Cursor>,
    /// Name of the event.
    pub(crate) name: &'static str,
    /// The event as JSON.
    pub(crate) data: Value,
    /// When the event was committed, if it is stored.
    pub(crate) committed_at: Option<Millis>,
    /// How long to wait before reconnecting, if the stream ends.
    pub(crate) retry: Option<Duration>,
}

impl Frame {
    /// A frame without a position.
    pub(crate) fn new(name: &'static str, data: Value) -> Self {
        Self {
            cursor: None,
            name,
            data,
            committed_at: None,
            retry: None,
        }
    }
}

/// Which events a client wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Names of events; empty for all.
    pub(crate) types: BTreeSet<String>,
    /// Only events of this thread.
    pub(crate) thread: Option<ThreadId>,
}

impl Filter {
    /// Whether the client wants an event.
    pub(crate) fn matches(&self, event: &Event) -> bool {
        let is_type = self.types.is_empty() || self.types.contains(event.kind.name());
        let thread = self.thread.as_ref();
        // A slow reader must learn that it lags.
        let is_lagged = matches!(event.kind, EventKind::Lagged { .. });
        is_lagged || is_type && thread.is_none_or(|thread| event.thread.as_ref() == Some(thread))
    }
}

/// The frame for an event of a session.
pub(crate) fn event_frame(session: &Session, notice: &Notice) -> Result<Frame, Problem> {
    let data = event_json(&notice.event, notice.entry.as_deref());
    let data = data.map_err(|error| {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "unreadable_event", error.to_string())
    })?;
    let stored = notice.event.sequence;
    Ok(Frame {
        committed_at: stored.map(|_| notice.event.at),
        cursor: notice
            .event
            .sequence
            .map(|number| Cursor::new(session, number)),
        ..Frame::new(notice.event.kind.name(), data)
    })
}

/// The state of a session, and the position in its events at which it has this state.
pub(crate) fn snapshot_json(snapshot: &SessionSnapshot) -> Value {
    let pending = snapshot
        .gates
        .iter()
        .filter(|gate| gate.status.is_pending());
    json!({
        "session": snapshot.session,
        "cursor": Cursor::new(&snapshot.session, snapshot.sequence).to_string(),
        "threads": snapshot.threads,
        "queue": snapshot.prompts,
        "pending_gates": pending.collect::<Vec<_>>(),
    })
}

/// The events of one session for one client.
pub(crate) struct SessionStream {
    engine: Engine,
    session: Session,
    events: SessionEvents,
    filter: Filter,
    until_idle: bool,
    draining: CancellationToken,
    /// Frames to send first.
    queue: VecDeque<Frame>,
    is_over: bool,
}

impl SessionStream {
    /// A stream that starts at a cursor, or without one at the current state.
    pub(crate) async fn new(
        sessions: &Sessions,
        snapshot: SessionSnapshot,
        cursor: Option<&Cursor>,
        filter: Filter,
        until_idle: bool,
        draining: CancellationToken,
    ) -> Result<Self, Problem> {
        let mut queue = VecDeque::new();
        let end = snapshot.sequence;
        let after = match cursor {
            None => None,
            Some(cursor) => {
                let after = cursor.in_session(&snapshot.session, end);
                if after.is_none() {
                    let reason = "the cursor is not a position in the events of this session";
                    let data = json!({ "cursor": cursor.to_string(), "reason": reason });
                    queue.push_back(Frame::new("reset", data));
                }
                after
            }
        };
        if after.is_none() {
            queue.push_back(Frame {
                cursor: Some(Cursor::new(&snapshot.session, end)),
                ..Frame::new("init", snapshot_json(&snapshot))
            });
        }
        let session = snapshot.session;
        Ok(Self {
            engine: sessions.engine.clone(),
            events: sessions.follow(&session.id, after.unwrap_or(end)).await?,
            session,
            filter,
            until_idle,
            draining,
            queue,
            is_over: false,
        })
    }

    /// Whether there are frames to send before the first event.
    pub(crate) fn has_frames(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the session is idle and all its events were sent.
    pub(crate) async fn is_idle(&self) -> Result<bool, Problem> {
        is_idle(&self.engine, &self.session.id, self.events.last()).await
    }

    /// The next frame; `None` at the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.queue.pop_front() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            if self.until_idle && self.is_idle().await.unwrap_or(false) {
                return None;
            }
            let pause = async {
                if self.until_idle {
                    tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            let next = tokio::select! {
                biased;
                () = self.draining.cancelled() => {
                    self.is_over = true;
                    return Some(closing_frame());
                }
                next = self.events.next() => next,
                () = pause => continue,
            };
            match next {
                Ok(Some(notice)) => {
                    if !self.filter.matches(&notice.event) {
                        continue;
                    }
                    let frame = match event_frame(&self.session, &notice) {
                        Ok(frame) => frame,
                        Err(problem) => self.fail(&problem),
                    };
                    self.queue.push_back(frame);
                }
                Ok(None) => {
                    self.is_over = true;
                    return Some(Frame::new("deleted", json!({ "session": self.session.id })));
                }
                Err(error) => {
                    let frame = self.fail(&Problem::from(error));
                    self.queue.push_back(frame);
                }
            }
        }
    }

    /// Ends the stream with a problem. The client's cursor stays valid.
    fn fail(&mut self, problem: &Problem) -> Frame {
        self.is_over = true;
        Frame {
            retry: Some(RECONNECT_DELAY),
            ..Frame::new("problem", problem.json())
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

/// The last frame of a stream when the server shuts down.
pub(crate) fn closing_frame() -> Frame {
    let delay = u64::try_from(RECONNECT_DELAY.as_millis()).unwrap_or_default();
    Frame {
        retry: Some(RECONNECT_DELAY),
        ..Frame::new("closing", json!({ "reconnect_after_ms": delay }))
    }
}

/// Whether a session does nothing until someone decides or prompts, and has no event after a
/// sequence number.
async fn is_idle(engine: &Engine, id: &SessionId, last: u64) -> Result<bool, Problem> {
    // In this order: what a turn committed before it ended is counted below.
    Ok(engine.is_quiescent(id).await? && engine.last_event(id).await? <= last)
}
