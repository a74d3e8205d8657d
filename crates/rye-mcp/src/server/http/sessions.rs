//! HTTP sessions that deliver messages directly to the event stream of a request.
//!
//! The SDK's session manager runs a task per session, which every message passes three times,
//! and drops a response once it is sent, even if the client was disconnected. This one writes
//! messages to the stream directly and keeps finished streams for a while, so that a client can
//! resume them.

mod event_stream;
mod session;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::server_side_http::session_id;
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use tokio_stream::{Stream, StreamExt as _};

use event_stream::{EventStream, Subscriber};
use session::{Session, SessionTransport};

/// How long a finished stream can be resumed.
const RETENTION: Duration = Duration::from_mins(1);
/// Maximum number of finished streams to keep.
const MAX_FINISHED: usize = 32;

/// How long to delay the head of a response, so that a short call sends head and body in one
/// packet: a second packet costs more than the call itself.
const COALESCE_DELAY: Duration = Duration::from_millis(2);

/// Errors of the session manager.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("unknown session `{0}`")]
    Unknown(SessionId),
    #[error("the session has ended")]
    Ended,
    #[error("event `{0}` belongs to no stream that can be resumed")]
    UnknownEvent(String),
}

/// All sessions and their recently finished streams.
#[derive(Default)]
pub(super) struct Sessions {
    sessions: RwLock<HashMap<SessionId, Arc<Session>>>,
    finished: Arc<FinishedStreams>,
}

/// Streams that have ended with a response.
#[derive(Default)]
struct FinishedStreams(Mutex<VecDeque<FinishedStream>>);

struct FinishedStream {
    at: Instant,
    session: SessionId,
    stream: Arc<EventStream>,
}

impl FinishedStreams {
    fn add(&self, session: SessionId, stream: Arc<EventStream>) {
        let finished = self.0.lock();
        let mut finished = finished.unwrap_or_else(PoisonError::into_inner);
        let is_expired = |ended: &FinishedStream| ended.at.elapsed() > RETENTION;
        while finished.len() >= MAX_FINISHED || finished.front().is_some_and(is_expired) {
            finished.pop_front();
        }
        let at = Instant::now();
        finished.push_back(FinishedStream {
            at,
            session,
            stream,
        });
    }

    fn find(&self, session: &SessionId, number: u64) -> Option<Arc<EventStream>> {
        let finished = self.0.lock();
        let finished = finished.unwrap_or_else(PoisonError::into_inner);
        let matches = |ended: &&FinishedStream| {
            ended.stream.number() == Some(number)
                && ended.session == *session
                && ended.at.elapsed() <= RETENTION
        };
        finished
            .iter()
            .find(matches)
            .map(|ended| Arc::clone(&ended.stream))
    }

    fn remove_session(&self, session: &SessionId) {
        let finished = self.0.lock();
        let mut finished = finished.unwrap_or_else(PoisonError::into_inner);
        finished.retain(|ended| ended.session != *session);
    }
}

impl Sessions {
    fn session(&self, id: &SessionId) -> Result<Arc<Session>, SessionError> {
        let sessions = self.sessions.read();
        let sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get(id).cloned();
        session.ok_or_else(|| SessionError::Unknown(id.clone()))
    }
}

/// Parses an event id: `INDEX/STREAM`, or `INDEX` for the standalone stream.
fn parse_event_id(id: &str) -> Option<(u64, Option<u64>)> {
    match id.split_once('/') {
        Some((index, stream)) => Some((index.parse().ok()?, Some(stream.parse().ok()?))),
        None => Some((id.parse().ok()?, None)),
    }
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), SessionError> {
        let id = session_id();
        let (session, transport) = Session::new(id.clone(), Arc::clone(&self.finished));
        let sessions = self.sessions.write();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        sessions.insert(id.clone(), session);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        let mut subscriber = self
            .session(id)?
            .send_request(message, EventStream::for_request)
            .await?;
        let answer = subscriber.next().await.and_then(|event| event.message);
        let answer = answer.ok_or(SessionError::Ended)?;
        Ok(Arc::unwrap_or_clone(answer))
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        let sessions = self.sessions.read();
        let sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        Ok(sessions.contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        let session = {
            let sessions = self.sessions.write();
            let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
            sessions.remove(id)
        };
        if let Some(session) = session {
            session.close();
        }
        self.finished.remove_session(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let subscriber = self
            .session(id)?
            .send_request(message, EventStream::with_retry_event)
            .await?;
        let _ = tokio::time::timeout(COALESCE_DELAY, subscriber.wait_end()).await;
        Ok(subscriber)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        let session = self.session(id)?;
        if let JsonRpcMessage::Notification(notification) = &message {
            session.on_notification(&notification.notification);
        }
        session.send(message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.session(id)?.subscribe(None))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let session = self.session(id)?;
        let Some((index, number)) = parse_event_id(&last_event_id) else {
            return Err(SessionError::UnknownEvent(last_event_id));
        };
        let Some(number) = number else {
            return Ok(session.subscribe(Some(index)));
        };
        let stream = session
            .request_stream(number)
            .or_else(|| self.finished.find(id, number));
        let stream = stream.ok_or(SessionError::UnknownEvent(last_event_id))?;
        Ok(Subscriber::resume(stream, index))
    }
}

#[cfg(test)]
mod tests;
