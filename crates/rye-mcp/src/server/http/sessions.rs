//! HTTP sessions whose event streams a client can resume after it was disconnected.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage, SessionId, SessionManager,
};
use tokio::sync::watch;

/// How long an event is kept.
const RETENTION: Duration = Duration::from_mins(1);
/// Id of the event with which the SDK begins a standalone stream.
const PRIMING_ID: &str = "0";
/// Maximum number of events to keep.
const MAX_EVENTS: usize = 256;

/// The SDK's session manager with a store of recent events.
///
/// It does not show the store to the SDK's service: calls without a session would no longer be
/// cancelled when their client disconnects.
pub(super) struct ResumableSessions(LocalSessionManager);

impl Default for ResumableSessions {
    fn default() -> Self {
        let events = Arc::new(RecentEvents::default());
        Self(LocalSessionManager::default().with_event_store(events))
    }
}

type SessionError = <LocalSessionManager as SessionManager>::Error;

impl SessionManager for ResumableSessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        self.0.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        self.0.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        self.0.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.0.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + 'static, SessionError> {
        self.0.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        self.0.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + 'static, SessionError> {
        self.0.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + 'static, SessionError> {
        // A client that received nothing else on the standalone stream sends this id back.
        if last_event_id == PRIMING_ID {
            let stream = self.0.create_standalone_stream(id).await?;
            return Ok(stream.left_stream());
        }
        let stream = self.0.resume(id, last_event_id).await?;
        Ok(stream.right_stream())
    }
}

/// The events that were sent recently.
#[derive(Default)]
struct RecentEvents(Arc<Shared>);

#[derive(Default)]
struct Shared {
    events: Mutex<Events>,
    /// Number of the last event. Changes wake the streams that replay events.
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct Events {
    last: u64,
    recent: VecDeque<RecentEvent>,
}

struct RecentEvent {
    number: u64,
    at: Instant,
    stream: String,
    event: ServerSseMessage,
}

impl Shared {
    /// The first event of a stream after the event with this number.
    fn next(&self, stream: &str, after: u64) -> Option<(u64, ServerSseMessage)> {
        let events = self.events.lock();
        let mut recent = events.recent.iter();
        let next = recent.find(|event| event.number > after && event.stream == stream);
        next.map(|next| (next.number, next.event.clone()))
    }
}

/// Whether an event ends its stream.
fn is_final(event: &ServerSseMessage) -> bool {
    let message = event.message.as_deref();
    matches!(
        message,
        Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
    )
}

/// A stream that is being replayed.
struct Replay {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    stream: String,
    /// Number of the last event that was replayed.
    last: u64,
    is_complete: bool,
}

impl Replay {
    /// The next event, which may still have to be sent; `None` after the final one.
    async fn next(mut self) -> Option<(ServerSseMessage, Self)> {
        if self.is_complete {
            return None;
        }
        loop {
            if let Some((number, event)) = self.shared.next(&self.stream, self.last) {
                self.last = number;
                self.is_complete = is_final(&event);
                return Some((event, self));
            }
            self.changes.changed().await.ok()?;
        }
    }
}

#[async_trait::async_trait]
impl EventStore for RecentEvents {
    async fn store_event(
        &self,
        stream: &str,
        event: &ServerSseMessage,
    ) -> Result<EventId, EventStoreError> {
        let mut events = self.0.events.lock();
        let is_expired = |event: &RecentEvent| event.at.elapsed() > RETENTION;
        while events.recent.len() >= MAX_EVENTS || events.recent.front().is_some_and(is_expired) {
            events.recent.pop_front();
        }
        events.last += 1;
        let number = events.last;
        // No client can guess the stream of another: its name contains a random number.
        let id = format!("{stream}/{number}");
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        events.recent.push_back(RecentEvent {
            number,
            at: Instant::now(),
            stream: stream.to_owned(),
            event,
        });
        drop(events);
        self.0.last.send_replace(number);
        Ok(id)
    }

    async fn replay_events_after(&self, last_id: &str) -> Result<EventStream, EventStoreError> {
        let known = self.0.events.lock().recent.iter().find_map(|event| {
            let is_last = event.event.event_id.as_deref() == Some(last_id);
            is_last.then(|| (event.number, event.stream.clone(), is_final(&event.event)))
        });
        let Some((last, stream, is_complete)) = known else {
            return Err(
                format!("event `{last_id}` belongs to no stream that can be resumed").into(),
            );
        };
        let replay = Replay {
            changes: self.0.last.subscribe(),
            shared: Arc::clone(&self.0),
            stream,
            last,
            is_complete,
        };
        Ok(Box::pin(stream::unfold(replay, Replay::next)))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{RequestId, ServerJsonRpcMessage, ServerResult};

    use super::*;

    fn answer() -> ServerSseMessage {
        let result = ServerResult::empty(());
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, RequestId::Number(1)))
    }

    async fn ids(stream: EventStream) -> Vec<String> {
        stream
            .filter_map(async |event| event.event_id)
            .collect()
            .await
    }

    #[tokio::test]
    async fn replay_contains_later_events_of_the_same_stream() {
        let events = RecentEvents::default();
        let begin = ServerSseMessage::retry(RETENTION);
        let first = events.store_event("a", &begin).await.unwrap();
        let resumed = events.replay_events_after(&first).await.unwrap();
        events.store_event("b", &answer()).await.unwrap();
        let last = events.store_event("a", &answer()).await.unwrap();
        assert_eq!(ids(resumed).await, [last.as_str()]);
        let resumed = events.replay_events_after(&first).await.unwrap();
        assert_eq!(ids(resumed).await, [last.as_str()]);
        let resumed = events.replay_events_after(&last).await.unwrap();
        assert!(ids(resumed).await.is_empty());
    }

    #[tokio::test]
    async fn number_of_events_is_bounded() {
        let events = RecentEvents::default();
        let first = events.store_event("a", &answer()).await.unwrap();
        for _ in 0..MAX_EVENTS {
            events.store_event("a", &answer()).await.unwrap();
        }
        assert!(events.replay_events_after(&first).await.is_err());
        assert!(events.replay_events_after("nonsense").await.is_err());
        assert_eq!(events.0.events.lock().recent.len(), MAX_EVENTS);
    }
}
