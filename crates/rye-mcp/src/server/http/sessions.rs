//! Sessions, in which a message goes straight from who has it to who waits for it.
//!
//! The SDK's own sessions have a task each, through which every message passes three times;
//! here it is put where its listener finds it. And they forget an answer once it is given,
//! whether or not somebody was there to take it; here it is kept for a while, for whoever
//! was cut off and comes back.

mod line;
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

use line::{Line, Listener};
use session::{End, Session};

/// How long an answer is kept, and how many are.
const KEPT_FOR: Duration = Duration::from_mins(1);
const KEPT: usize = 32;

/// How long the head of an answer waits for what it says, so that a short call has both in
/// one piece: every further piece costs the machine more than the call itself.
const TOGETHER: Duration = Duration::from_millis(2);

/// Why a message of a client went nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("there is no session `{0}`")]
    Unknown(SessionId),
    #[error("the session has ended")]
    Ended,
    #[error("`{0}` is not the last event of a stream that is still there")]
    Event(String),
}

/// All sessions, and the last answers that were given in them.
#[derive(Default)]
pub(super) struct Sessions {
    sessions: RwLock<HashMap<SessionId, Arc<Session>>>,
    given: Arc<Given>,
}

/// Streams that have ended with their answers.
#[derive(Default)]
struct Given(Mutex<VecDeque<Ended>>);

struct Ended {
    at: Instant,
    session: SessionId,
    line: Arc<Line>,
}

impl Given {
    fn keep(&self, session: SessionId, line: Arc<Line>) {
        let given = self.0.lock();
        let mut given = given.unwrap_or_else(PoisonError::into_inner);
        let is_old = |ended: &Ended| ended.at.elapsed() > KEPT_FOR;
        while given.len() >= KEPT || given.front().is_some_and(is_old) {
            given.pop_front();
        }
        let at = Instant::now();
        given.push_back(Ended { at, session, line });
    }

    fn find(&self, session: &SessionId, number: u64) -> Option<Arc<Line>> {
        let given = self.0.lock();
        let given = given.unwrap_or_else(PoisonError::into_inner);
        let is_it = |ended: &&Ended| {
            ended.line.number() == Some(number)
                && ended.session == *session
                && ended.at.elapsed() <= KEPT_FOR
        };
        given
            .iter()
            .find(is_it)
            .map(|ended| Arc::clone(&ended.line))
    }

    fn forget(&self, session: &SessionId) {
        let given = self.0.lock();
        let mut given = given.unwrap_or_else(PoisonError::into_inner);
        given.retain(|ended| ended.session != *session);
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

/// Where an event is, by its id: `INDEX/STREAM`, or `INDEX` on what all listen to.
fn place(id: &str) -> Option<(u64, Option<u64>)> {
    match id.split_once('/') {
        Some((index, stream)) => Some((index.parse().ok()?, Some(stream.parse().ok()?))),
        None => Some((id.parse().ok()?, None)),
    }
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = End;

    async fn create_session(&self) -> Result<(SessionId, End), SessionError> {
        let id = session_id();
        let (session, end) = Session::new(id.clone(), Arc::clone(&self.given));
        let sessions = self.sessions.write();
        let mut sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        sessions.insert(id.clone(), session);
        Ok((id, end))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        let mut listener = self.session(id)?.ask(message, Line::begin).await?;
        let answer = listener.next().await.and_then(|event| event.message);
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
            session.end();
        }
        self.given.forget(id);
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let listener = self.session(id)?.ask(message, Line::primed).await?;
        let _ = tokio::time::timeout(TOGETHER, listener.ended()).await;
        Ok(listener)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        let session = self.session(id)?;
        if let JsonRpcMessage::Notification(notification) = &message {
            session.notice(&notification.notification);
        }
        session.say(message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.session(id)?.listen(None))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let session = self.session(id)?;
        let Some((index, stream)) = place(&last_event_id) else {
            return Err(SessionError::Event(last_event_id));
        };
        let Some(number) = stream else {
            return Ok(session.listen(Some(index)));
        };
        let line = session.line(number).or_else(|| self.given.find(id, number));
        let line = line.ok_or(SessionError::Event(last_event_id))?;
        Ok(Listener::after(line, index))
    }
}

#[cfg(test)]
mod tests;
