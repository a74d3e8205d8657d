//! Events of one server-sent event stream, with one subscriber at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio_stream::Stream;

/// Maximum number of buffered events for a slow or disconnected subscriber. Beyond it, the
/// oldest notifications are dropped; requests and responses are kept.
const MAX_EVENTS: usize = 256;

/// Reconnection delay for clients.
const RETRY_DELAY: Duration = Duration::from_secs(3);

/// The events of one stream.
pub(super) struct EventStream {
    /// Number of the stream in its session; `None` for the standalone stream.
    number: Option<u64>,
    state: Mutex<StreamState>,
}

struct StreamState {
    events: VecDeque<(u64, ServerSseMessage)>,
    /// Index of the next event.
    next: u64,
    /// Index of the first event that was not delivered.
    undelivered: u64,
    ended: bool,
    /// Generation of the current subscriber; earlier subscribers get no more events.
    generation: u64,
    has_subscriber: bool,
    waker: Option<Waker>,
}

impl EventStream {
    fn new(number: Option<u64>, next: u64) -> Self {
        let state = StreamState {
            events: VecDeque::new(),
            next,
            undelivered: next,
            ended: false,
            generation: 0,
            has_subscriber: false,
            waker: None,
        };
        Self {
            number,
            state: Mutex::new(state),
        }
    }

    /// The stream of a request.
    pub(super) fn for_request(number: u64) -> Self {
        Self::new(Some(number), 0)
    }

    /// The stream of a request with an empty first event, so that a client that is disconnected
    /// early has an event id to resume from.
    pub(super) fn with_retry_event(number: u64) -> Self {
        let stream = Self::for_request(number);
        stream.push_event(ServerSseMessage::retry(RETRY_DELAY));
        stream
    }

    /// The standalone stream of a session. The SDK sends event 0 itself.
    pub(super) fn standalone() -> Self {
        Self::new(None, 1)
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Adds a message.
    pub(super) fn push(&self, message: ServerJsonRpcMessage) {
        self.push_event(ServerSseMessage::from_message(message));
    }

    /// Ends the stream.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.ended = true;
        state.wake();
    }

    pub(super) fn has_subscriber(&self) -> bool {
        self.state().has_subscriber
    }

    fn push_event(&self, mut event: ServerSseMessage) {
        let mut state = self.state();
        let index = state.next;
        state.next += 1;
        event.event_id = Some(match self.number {
            Some(number) => format!("{index}/{number}"),
            None => index.to_string(),
        });
        if state.events.len() == MAX_EVENTS {
            let oldest = state
                .events
                .iter()
                .position(|(_, event)| is_droppable(event));
            state.events.remove(oldest.unwrap_or_default());
        }
        state.events.push_back((index, event));
        state.wake();
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamState {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

fn is_droppable(event: &ServerSseMessage) -> bool {
    matches!(
        event.message.as_deref(),
        None | Some(JsonRpcMessage::Notification(_))
    )
}

/// Receives the events of a stream.
pub(super) struct Subscriber {
    stream: Arc<EventStream>,
    /// Index of the next event to receive.
    next: u64,
    generation: u64,
}

impl Subscriber {
    /// Receives the events that were not delivered.
    pub(super) fn new(stream: Arc<EventStream>) -> Self {
        let next = stream.state().undelivered;
        Self::starting_at(stream, next)
    }

    /// Receives the events after an index.
    pub(super) fn resume(stream: Arc<EventStream>, index: u64) -> Self {
        Self::starting_at(stream, index.saturating_add(1))
    }

    fn starting_at(stream: Arc<EventStream>, next: u64) -> Self {
        let mut state = stream.state();
        state.generation += 1;
        state.has_subscriber = true;
        // The previous subscriber has to notice.
        state.wake();
        let generation = state.generation;
        drop(state);
        Self {
            stream,
            next,
            generation,
        }
    }

    /// Waits until the stream has ended.
    pub(super) async fn wait_end(&self) {
        poll_fn(|context| {
            let mut state = self.stream.state();
            if state.ended || state.generation != self.generation {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Stream for Subscriber {
    type Item = ServerSseMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<ServerSseMessage>> {
        let stream = Arc::clone(&self.stream);
        let mut state = stream.state();
        if state.generation != self.generation {
            return Poll::Ready(None);
        }
        let position = state
            .events
            .partition_point(|(index, _)| *index < self.next);
        if let Some((index, event)) = state.events.get(position).cloned() {
            self.next = index + 1;
            state.undelivered = state.undelivered.max(self.next);
            return Poll::Ready(Some(event));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut state = self.stream.state();
        if state.generation == self.generation {
            state.has_subscriber = false;
            state.waker = None;
        }
    }
}
