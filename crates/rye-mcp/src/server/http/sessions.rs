//! Sessions whose answers wait for those who were cut off.
//!
//! The SDK forgets an answer once it is given, whether or not somebody was there to take
//! it. Here it is kept for a while, and given to whoever comes back for it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, ServerSseMessage, SessionId, SessionManager,
};
use tokio::runtime::Handle;
use tokio_stream::{Stream, StreamExt as _};

/// How long an answer is kept, and how many are.
const KEPT_FOR: Duration = Duration::from_mins(1);
const KEPT: usize = 32;

/// The SDK's sessions, and the last answers that were given in them.
#[derive(Default)]
pub(super) struct Sessions {
    sessions: LocalSessionManager,
    given: Arc<Mutex<VecDeque<Given>>>,
}

/// An answer that was given.
struct Given {
    at: Instant,
    session: SessionId,
    event: ServerSseMessage,
}

type Events = Pin<Box<dyn Stream<Item = ServerSseMessage> + Send + Sync>>;
type Error = <LocalSessionManager as SessionManager>::Error;

impl Sessions {
    /// Hands a stream on, and reads it to its end even if nobody listens any more.
    fn follow(
        &self,
        session: &SessionId,
        stream: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    ) -> Followed {
        Followed {
            stream: Some(Box::pin(stream)),
            session: session.clone(),
            given: Arc::clone(&self.given),
        }
    }

    fn forget(&self, session: &SessionId) {
        let given = self.given.lock();
        let mut given = given.unwrap_or_else(PoisonError::into_inner);
        given.retain(|given| given.session != *session);
    }

    /// The answer that came on a stream after an event of it.
    fn given_after(&self, session: &SessionId, last: &str) -> Option<ServerSseMessage> {
        let (last, stream) = place(last)?;
        let given = self.given.lock();
        let given = given.unwrap_or_else(PoisonError::into_inner);
        let mut own = given.iter().filter(|given| given.session == *session);
        let found = own.find(|given| {
            let id = given.event.event_id.as_deref().and_then(place);
            id.is_some_and(|(index, other)| other == stream && index > last)
        });
        found.map(|given| given.event.clone())
    }
}

/// A stream whose answer is kept. It is read where it is sent from, which spares each
/// call a task; only who is gone before its end leaves the rest to one.
struct Followed {
    /// None once it has ended.
    stream: Option<Events>,
    session: SessionId,
    given: Arc<Mutex<VecDeque<Given>>>,
}

impl Stream for Followed {
    type Item = ServerSseMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<ServerSseMessage>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        let next = std::task::ready!(stream.as_mut().poll_next(context));
        match &next {
            Some(event) if is_answer(event) => keep(&self.given, &self.session, event),
            Some(_) => {}
            None => self.stream = None,
        }
        Poll::Ready(next)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // Who is gone may come back. Without a runtime the server is gone, too.
        if let Some(mut stream) = self.stream.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let (session, given) = (self.session.clone(), Arc::clone(&self.given));
            runtime.spawn(async move {
                while let Some(event) = stream.next().await {
                    if is_answer(&event) {
                        keep(&given, &session, &event);
                    }
                }
            });
        }
    }
}

fn keep(given: &Mutex<VecDeque<Given>>, session: &SessionId, event: &ServerSseMessage) {
    let given = given.lock();
    let mut given = given.unwrap_or_else(PoisonError::into_inner);
    let is_old = |given: &Given| given.at.elapsed() > KEPT_FOR;
    while given.len() >= KEPT || given.front().is_some_and(is_old) {
        given.pop_front();
    }
    given.push_back(Given {
        at: Instant::now(),
        session: session.clone(),
        event: event.clone(),
    });
}

fn is_answer(event: &ServerSseMessage) -> bool {
    matches!(
        event.message.as_deref(),
        Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_))
    )
}

/// Where an event is, by its id: `INDEX/STREAM`.
fn place(id: &str) -> Option<(u64, &str)> {
    let (index, stream) = id.split_once('/')?;
    Some((index.parse().ok()?, stream))
}

impl SessionManager for Sessions {
    type Error = Error;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Error> {
        self.sessions.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Error> {
        self.sessions.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Error> {
        self.sessions.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Error> {
        self.forget(id);
        self.sessions.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        let stream = self.sessions.create_stream(id, message).await?;
        Ok(self.follow(id, stream))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Error> {
        self.sessions.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        self.sessions.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Error> {
        let is_of_a_request = place(&last_event_id).is_some();
        // Of a stream that goes on, the SDK knows; of one that has ended, only we do.
        let stream: Events = match self.sessions.resume(id, last_event_id.clone()).await {
            Ok(stream) if is_of_a_request => Box::pin(self.follow(id, stream)),
            // One that a client listens to must end with it, or the SDK holds it for heard.
            Ok(stream) => Box::pin(stream),
            Err(error) => match self.given_after(id, &last_event_id) {
                Some(answer) => Box::pin(tokio_stream::once(answer)),
                None => return Err(error),
            },
        };
        Ok(stream)
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Error> {
        self.sessions.restore_session(id).await
    }
}
