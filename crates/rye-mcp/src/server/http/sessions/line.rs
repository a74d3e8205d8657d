//! What is said on one stream, and how far its listener has heard it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio_stream::Stream;

/// How many events are held for a listener that is slow or cut off. Then news of progress
/// is dropped, the oldest first; what has to be answered, and answers, are not.
const HELD: usize = 256;

/// When a client that was cut off comes back.
const RETRY: Duration = Duration::from_secs(3);

/// One stream's events.
pub(super) struct Line {
    /// None for the one that belongs to no request.
    number: Option<u64>,
    said: Mutex<Said>,
}

struct Said {
    events: VecDeque<(u64, ServerSseMessage)>,
    /// The index of the next event.
    next: u64,
    /// The index of the first that nobody has heard.
    unheard: u64,
    ended: bool,
    /// Which listener is the present one; who was replaced hears nothing more.
    listener: u64,
    is_heard: bool,
    waker: Option<Waker>,
}

impl Line {
    fn new(number: Option<u64>, next: u64) -> Self {
        let said = Said {
            events: VecDeque::new(),
            next,
            unheard: next,
            ended: false,
            listener: 0,
            is_heard: false,
            waker: None,
        };
        Self {
            number,
            said: Mutex::new(said),
        }
    }

    /// The stream of a request.
    pub(super) fn begin(number: u64) -> Self {
        Self::new(Some(number), 0)
    }

    /// One whose first event says nothing, so that who is cut off knows what to ask for.
    pub(super) fn primed(number: u64) -> Self {
        let line = Self::begin(number);
        line.put(ServerSseMessage::retry(RETRY));
        line
    }

    /// What belongs to no request. The SDK begins it with an event 0 of its own.
    pub(super) fn common() -> Self {
        Self::new(None, 1)
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    pub(super) fn say(&self, message: ServerJsonRpcMessage) {
        self.put(ServerSseMessage::from_message(message));
    }

    /// Says that nothing more will be said.
    pub(super) fn end(&self) {
        let mut said = self.said();
        said.ended = true;
        said.wake();
    }

    /// Whether somebody listens.
    pub(super) fn is_heard(&self) -> bool {
        self.said().is_heard
    }

    fn put(&self, mut event: ServerSseMessage) {
        let mut said = self.said();
        let index = said.next;
        said.next += 1;
        event.event_id = Some(match self.number {
            Some(number) => format!("{index}/{number}"),
            None => index.to_string(),
        });
        if said.events.len() == HELD {
            let oldest = said.events.iter().position(|(_, event)| is_news(event));
            said.events.remove(oldest.unwrap_or_default());
        }
        said.events.push_back((index, event));
        said.wake();
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

fn is_news(event: &ServerSseMessage) -> bool {
    matches!(
        event.message.as_deref(),
        None | Some(JsonRpcMessage::Notification(_))
    )
}

/// Who listens to a line.
pub(super) struct Listener {
    line: Arc<Line>,
    /// The index of the next event to hear.
    next: u64,
    /// Which of the line's listeners this is.
    turn: u64,
}

impl Listener {
    /// Hears what nobody has heard.
    pub(super) fn of(line: Arc<Line>) -> Self {
        let next = line.said().unheard;
        Self::from(line, next)
    }

    /// Hears what came after an event.
    pub(super) fn after(line: Arc<Line>, index: u64) -> Self {
        Self::from(line, index.saturating_add(1))
    }

    fn from(line: Arc<Line>, next: u64) -> Self {
        let mut said = line.said();
        said.listener += 1;
        said.is_heard = true;
        // Who listened until now must notice.
        said.wake();
        let turn = said.listener;
        drop(said);
        Self { line, next, turn }
    }

    /// Waits until all is said.
    pub(super) async fn ended(&self) {
        poll_fn(|context| {
            let mut said = self.line.said();
            if said.ended || said.listener != self.turn {
                return Poll::Ready(());
            }
            said.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Stream for Listener {
    type Item = ServerSseMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<ServerSseMessage>> {
        let line = Arc::clone(&self.line);
        let mut said = line.said();
        if said.listener != self.turn {
            return Poll::Ready(None);
        }
        let at = said.events.partition_point(|(index, _)| *index < self.next);
        if let Some((index, event)) = said.events.get(at).cloned() {
            self.next = index + 1;
            said.unheard = said.unheard.max(self.next);
            return Poll::Ready(Some(event));
        }
        if said.ended {
            return Poll::Ready(None);
        }
        said.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut said = self.line.said();
        if said.listener == self.turn {
            said.is_heard = false;
            said.waker = None;
        }
    }
}
