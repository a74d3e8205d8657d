//! One client session: passes requests to the server, and messages of the server to the event
//! stream of the request they belong to.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions as _, GetMeta as _, JsonRpcMessage,
    ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::time::{Instant, Sleep};

use super::event_stream::{EventStream, Subscriber};
use super::{FinishedStreams, SessionError};

/// How long a session without requests and subscribers is kept.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum number of queued messages to the server.
const QUEUE_LEN: usize = 16;

/// Maximum number of additional standalone streams, which receive no events.
const MAX_EXTRA_STREAMS: usize = 32;

/// A session of an HTTP client.
pub(super) struct Session {
    id: SessionId,
    state: Mutex<SessionState>,
    finished: Arc<FinishedStreams>,
}

struct SessionState {
    /// `None` once the session has ended.
    to_server: Option<mpsc::Sender<ClientJsonRpcMessage>>,
    /// Number of the next request stream.
    next_stream: u64,
    requests: HashMap<RequestId, Request>,
    progress: HashMap<ProgressToken, RequestId>,
    /// Receives messages that belong to no request.
    standalone: Arc<EventStream>,
    extra_streams: VecDeque<Arc<EventStream>>,
    /// Time of the last message or subscription.
    last_activity: Instant,
}

struct Request {
    stream: Arc<EventStream>,
    progress: Option<ProgressToken>,
}

impl SessionState {
    /// Removes a request and returns its stream.
    fn remove_request(&mut self, id: &RequestId) -> Option<Arc<EventStream>> {
        let request = self.requests.remove(id)?;
        if let Some(token) = request.progress {
            self.progress.remove(&token);
        }
        Some(request.stream)
    }

    fn request_stream(&self, id: &RequestId) -> Option<&Arc<EventStream>> {
        self.requests.get(id).map(|request| &request.stream)
    }

    /// The stream for a request or notification of the server.
    fn stream_for(&self, message: &ServerJsonRpcMessage) -> &Arc<EventStream> {
        let stream = match message {
            JsonRpcMessage::Request(request) => {
                let origin = request.request.extensions().get::<OriginatingRequestId>();
                origin.and_then(|origin| self.request_stream(&origin.0))
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    let request = self.progress.get(&progress.params.progress_token);
                    request.and_then(|id| self.request_stream(id))
                }
                ServerNotification::CancelledNotification(cancelled) => {
                    let request = cancelled.params.request_id.as_ref();
                    request.and_then(|id| self.request_stream(id))
                }
                _ => None,
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        };
        stream.unwrap_or(&self.standalone)
    }
}

impl Session {
    /// Creates a session and its transport for the server.
    pub(super) fn new(
        id: SessionId,
        finished: Arc<FinishedStreams>,
    ) -> (Arc<Self>, SessionTransport) {
        let (to_server, incoming) = mpsc::channel(QUEUE_LEN);
        let state = SessionState {
            to_server: Some(to_server),
            next_stream: 0,
            requests: HashMap::new(),
            progress: HashMap::new(),
            standalone: Arc::new(EventStream::standalone()),
            extra_streams: VecDeque::new(),
            last_activity: Instant::now(),
        };
        let session = Arc::new(Self {
            id,
            state: Mutex::new(state),
            finished,
        });
        let transport = SessionTransport {
            session: Arc::clone(&session),
            incoming,
            idle: Box::pin(tokio::time::sleep(IDLE_TIMEOUT)),
        };
        (session, transport)
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a place in the queue to the server.
    async fn reserve(&self) -> Result<OwnedPermit<ClientJsonRpcMessage>, SessionError> {
        let to_server = {
            let mut state = self.state();
            state.last_activity = Instant::now();
            state.to_server.clone()
        };
        let to_server = to_server.ok_or(SessionError::Ended)?;
        let permit = to_server.reserve_owned().await;
        permit.map_err(|_| SessionError::Ended)
    }

    /// Passes a message to the server.
    pub(super) async fn send(&self, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        self.reserve().await?.send(message);
        Ok(())
    }

    /// Passes a request to the server and subscribes to its stream.
    ///
    /// The request is registered after a place in the queue is reserved, so that a client that
    /// disconnects before that leaves nothing behind.
    pub(super) async fn send_request(
        &self,
        message: ClientJsonRpcMessage,
        new_stream: impl FnOnce(u64) -> EventStream,
    ) -> Result<Subscriber, SessionError> {
        let permit = self.reserve().await?;
        let mut state = self.state();
        let stream = Arc::new(new_stream(state.next_stream));
        state.next_stream += 1;
        if state.to_server.is_none() {
            return Err(SessionError::Ended);
        }
        if let JsonRpcMessage::Request(request) = &message {
            // A reused id replaces the earlier request.
            if let Some(previous) = state.remove_request(&request.id) {
                previous.close();
            }
            let progress = request.request.get_meta().get_progress_token();
            if let Some(token) = &progress {
                state.progress.insert(token.clone(), request.id.clone());
            }
            let entry = Request {
                stream: Arc::clone(&stream),
                progress,
            };
            state.requests.insert(request.id.clone(), entry);
        }
        drop(state);
        permit.send(message);
        Ok(Subscriber::new(stream))
    }

    /// Ends the stream of a request that the client cancels.
    pub(super) fn on_notification(&self, notification: &ClientNotification) {
        if let ClientNotification::CancelledNotification(cancelled) = notification
            && let Some(id) = &cancelled.params.request_id
            && let Some(stream) = self.state().remove_request(id)
        {
            stream.close();
        }
    }

    /// The stream of a request in progress.
    pub(super) fn request_stream(&self, number: u64) -> Option<Arc<EventStream>> {
        let state = self.state();
        let mut running = state.requests.values().map(|request| &request.stream);
        running
            .find(|stream| stream.number() == Some(number))
            .cloned()
    }

    /// Subscribes to the standalone stream. If it has a subscriber, returns an empty stream
    /// instead, because clients that open several would keep disconnecting each other.
    pub(super) fn subscribe(&self, after: Option<u64>) -> Subscriber {
        let mut state = self.state();
        state.last_activity = Instant::now();
        if state.to_server.is_some() && state.standalone.has_subscriber() {
            let extra = Arc::new(EventStream::standalone());
            if state.extra_streams.len() == MAX_EXTRA_STREAMS
                && let Some(oldest) = state.extra_streams.pop_front()
            {
                oldest.close();
            }
            state.extra_streams.push_back(Arc::clone(&extra));
            return Subscriber::new(extra);
        }
        let standalone = Arc::clone(&state.standalone);
        match after {
            Some(index) => Subscriber::resume(standalone, index),
            None => Subscriber::new(standalone),
        }
    }

    /// Delivers a message of the server to its stream.
    fn deliver(&self, message: ServerJsonRpcMessage) {
        let mut state = self.state();
        state.last_activity = Instant::now();
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some(id) = answered else {
            state.stream_for(&message).push(message);
            return;
        };
        // A cancelled request has no stream.
        let Some(stream) = state.remove_request(id) else {
            return;
        };
        drop(state);
        stream.push(message);
        stream.close();
        self.finished.add(self.id.clone(), stream);
    }

    /// Ends all streams and the transport of the server.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.to_server = None;
        state.progress.clear();
        for (_, request) in state.requests.drain() {
            request.stream.close();
        }
        for extra in state.extra_streams.drain(..) {
            extra.close();
        }
        state.standalone.close();
    }

    /// When the session times out if nothing happens until then.
    fn idle_deadline(&self) -> Instant {
        let state = self.state();
        let since = if state.requests.is_empty() && !state.standalone.has_subscriber() {
            state.last_activity
        } else {
            Instant::now()
        };
        since + IDLE_TIMEOUT
    }
}

/// Transport of the server in a session.
pub(in crate::server::http) struct SessionTransport {
    session: Arc<Session>,
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    /// One timer for all messages; it checks the last activity when it fires.
    idle: Pin<Box<Sleep>>,
}

impl Transport<RoleServer> for SessionTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        self.session.deliver(message);
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            tokio::select! {
                biased;
                message = self.incoming.recv() => return message,
                () = &mut self.idle => {
                    let deadline = self.session.idle_deadline();
                    if deadline <= Instant::now() {
                        return None;
                    }
                    self.idle.as_mut().reset(deadline);
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.session.close();
        Ok(())
    }
}

impl Drop for SessionTransport {
    fn drop(&mut self) {
        self.session.close();
    }
}
