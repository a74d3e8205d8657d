//! Recent events of all streams, so that a client that was disconnected can resume a stream.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream;
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
};
use tokio::sync::watch;

/// How long an event is kept.
const RETENTION: Duration = Duration::from_mins(1);
/// Maximum number of events to keep.
const MAX_EVENTS: usize = 256;

/// The events that were sent recently.
#[derive(Default)]
pub(super) struct RecentEvents(Arc<Shared>);

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
    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first event of a stream after the event with this number.
    fn next(&self, stream: &str, after: u64) -> Option<(u64, ServerSseMessage)> {
        let events = self.events();
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
        let mut events = self.0.events();
        let is_expired = |event: &RecentEvent| event.at.elapsed() > RETENTION;
        while events.recent.len() >= MAX_EVENTS || events.recent.front().is_some_and(is_expired) {
            events.recent.pop_front();
        }
        events.last += 1;
        let number = events.last;
        // The name of the stream contains the id of its session, which other clients cannot
        // guess.
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
        let known = self.0.events().recent.iter().find_map(|event| {
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
    use futures_util::StreamExt as _;
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
        assert_eq!(events.0.events().recent.len(), MAX_EVENTS);
    }
}
